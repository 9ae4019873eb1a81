#include "kernels/ops/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/ops/image/every_target.h"

namespace weir {
namespace {

// How far `value` is from `exact`, in units of a float's last place at `exact`.
double Ulps(float value, double exact) {
  const float magnitude = std::fabs(static_cast<float>(exact));
  const float next =
      std::nextafter(magnitude, std::numeric_limits<float>::infinity());
  return std::fabs(static_cast<double>(value) - exact) /
         static_cast<double>(next - magnitude);
}

// Every 997th float of either sign up to 8, and the neighbors of where the
// code changes its way.
std::vector<float> Arguments() {
  std::vector<float> x;
  const auto last = std::bit_cast<uint32_t>(8.0f);
  for (uint32_t bits = 0; bits < last; bits += 997) {
    x.push_back(std::bit_cast<float>(bits));
  }
  for (const float edge : {1.0f, 4.0f}) {
    for (int32_t step = -50; step <= 50; ++step) {
      x.push_back(std::bit_cast<float>(std::bit_cast<int32_t>(edge) + step));
    }
  }
  const size_t positive = x.size();
  for (size_t i = 0; i < positive; ++i) x.push_back(-x[i]);
  return x;
}

TEST(VectorMathTest, ErfIsWithinTwoUlpsOnEveryTarget) {
  const std::vector<float> x = Arguments();
  std::vector<double> exact;
  for (const float v : x) exact.push_back(std::erf(static_cast<double>(v)));
  image::OnEveryTarget([&](const char* target) {
    SCOPED_TRACE(target);
    std::vector<float> y(x.size());
    ErfOfFloats(x.data(), static_cast<int64_t>(x.size()), y.data());
    double worst = 0;
    float worst_x = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double off = Ulps(y[i], exact[i]);
      if (off > worst) {
        worst = off;
        worst_x = x[i];
      }
      ASSERT_EQ(std::signbit(y[i]), std::signbit(x[i])) << x[i];
    }
    EXPECT_LE(worst, 2) << "at " << worst_x;
  });
}

TEST(VectorMathTest, ErfOfAnElementDependsOnTheElementAlone) {
  std::vector<float> x;
  for (int i = 0; i < 67; ++i) {
    x.push_back(static_cast<float>(i - 33) / 8.0f);
  }
  image::OnEveryTarget([&](const char* target) {
    SCOPED_TRACE(target);
    std::vector<float> whole(x.size());
    ErfOfFloats(x.data(), static_cast<int64_t>(x.size()), whole.data());
    for (size_t i = 0; i < x.size(); ++i) {
      float alone = 0;
      ErfOfFloats(&x[i], 1, &alone);
      EXPECT_EQ(alone, whole[i]) << x[i];
    }
  });
}

TEST(VectorMathTest, ErfOfSpecialNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kLargest = std::numeric_limits<float>::max();
  image::OnEveryTarget([&](const char* target) {
    SCOPED_TRACE(target);
    // In place, and so many that vectors and single lanes both see each.
    std::vector<float> x;
    for (int i = 0; i < 19; ++i) {
      x.insert(x.end(), {kInf, -kInf, kNan, kLargest, -kLargest, 0.0f, -0.0f});
    }
    ErfOfFloats(x.data(), static_cast<int64_t>(x.size()), x.data());
    for (size_t i = 0; i < x.size(); i += 7) {
      EXPECT_EQ(x[i], 1);
      EXPECT_EQ(x[i + 1], -1);
      EXPECT_TRUE(std::isnan(x[i + 2]));
      EXPECT_EQ(x[i + 3], 1);
      EXPECT_EQ(x[i + 4], -1);
      EXPECT_EQ(x[i + 5], 0);
      EXPECT_FALSE(std::signbit(x[i + 5]));
      EXPECT_EQ(x[i + 6], 0);
      EXPECT_TRUE(std::signbit(x[i + 6]));
    }
  });
}

}  // namespace
}  // namespace weir
