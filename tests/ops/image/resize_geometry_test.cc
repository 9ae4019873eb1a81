#include "kernels/ops/image/resize_geometry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>
#include <vector>

namespace weir::image {
namespace {

ResizeGeometry Make(int64_t height, int64_t width, const ResizeSize& size) {
  const auto geometry = MakeResizeGeometry(height, width, size);
  EXPECT_TRUE(geometry.ok()) << geometry.status();
  return geometry.value_or(ResizeGeometry{});
}

void ExpectSize(const ResizeGeometry& geometry, int64_t height, int64_t width) {
  EXPECT_EQ(geometry.y.out_size, height);
  EXPECT_EQ(geometry.x.out_size, width);
}

TEST(ResizeGeometryTest, ShorterAndLongerKeepTheAspectRatio) {
  ExpectSize(Make(480, 640, {.shorter = 256}), 256, 341);
  ExpectSize(Make(640, 480, {.shorter = 256}), 341, 256);
  ExpectSize(Make(480, 640, {.longer = 256}), 192, 256);
  ExpectSize(Make(100, 100, {.longer = 30}), 30, 30);
}

TEST(ResizeGeometryTest, ZeroKeepsTheAspectRatioOrTheSize) {
  ExpectSize(Make(480, 640, {.x = 320}), 240, 320);
  ExpectSize(Make(480, 640, {.y = 120}), 120, 160);
  ExpectSize(Make(480, 640, {.x = 100, .y = 100}), 100, 100);
  ExpectSize(Make(480, 640, {}), 480, 640);
}

TEST(ResizeGeometryTest, AnExactSizeCoversTheWholeSource) {
  const ResizeGeometry geometry = Make(480, 640, {.x = 320, .y = 100});
  EXPECT_DOUBLE_EQ(geometry.x.step, 2);
  EXPECT_DOUBLE_EQ(geometry.x.origin, 0);
  EXPECT_DOUBLE_EQ(geometry.y.step, 4.8);
  EXPECT_DOUBLE_EQ(geometry.y.origin, 0);
}

TEST(ResizeGeometryTest, AFractionalSizeKeepsTheExactScaleAboutTheCenter) {
  const ResizeGeometry geometry = Make(480, 640, {.shorter = 256});
  EXPECT_DOUBLE_EQ(geometry.y.step, 1.875);
  EXPECT_DOUBLE_EQ(geometry.x.step, 1.875);
  // 341 of 341.33 columns: the source region shrinks by 0.625 pixels.
  EXPECT_DOUBLE_EQ(geometry.x.origin, 0.3125);

  // Rounded up, it grows beyond the picture instead.
  const ResizeGeometry wider = Make(3, 8, {.y = 1});
  EXPECT_EQ(wider.x.out_size, 3);
  EXPECT_DOUBLE_EQ(wider.x.step, 3);
  EXPECT_DOUBLE_EQ(wider.x.origin, -0.5);
}

TEST(ResizeGeometryTest, ANegativeSizeMirrors) {
  const ResizeGeometry geometry = Make(480, 640, {.x = -320, .y = 240});
  ExpectSize(geometry, 240, 320);
  EXPECT_DOUBLE_EQ(geometry.x.step, -2);
  EXPECT_DOUBLE_EQ(geometry.x.origin, 640);
  EXPECT_DOUBLE_EQ(geometry.y.step, 2);

  // A side that is only implied is not mirrored.
  EXPECT_GT(Make(480, 640, {.x = -320}).y.step, 0);
  EXPECT_LT(Make(480, 640, {.shorter = -240}).y.step, 0);
  EXPECT_LT(Make(480, 640, {.shorter = -240}).x.step, 0);
}

TEST(ResizeGeometryTest, NeverYieldsAnEmptyOutput) {
  ExpectSize(Make(2, 1000, {.longer = 10}), 1, 10);
  ExpectSize(Make(1, 1000, {.x = 0.001}), 1, 1);
}

TEST(ResizeGeometryTest, RefusesWhatCannotBe) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto code = [](int64_t height, int64_t width, ResizeSize size) {
    return MakeResizeGeometry(height, width, size).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(0, 5, {.x = 3}), kInvalid);
  EXPECT_EQ(code(5, -1, {.x = 3}), kInvalid);
  EXPECT_EQ(code(5, 5, {.x = infinity}), kInvalid);
  EXPECT_EQ(code(5, 5, {.shorter = nan}), kInvalid);
  EXPECT_EQ(code(5, 5, {.x = 3, .shorter = 3}), kInvalid);
  EXPECT_EQ(code(5, 5, {.shorter = 3, .longer = 3}), kInvalid);
  EXPECT_EQ(code(5, 5, {.x = 1e12}), kInvalid);
  EXPECT_EQ(code(1, 16384, {.shorter = 5}), kInvalid);  // 81,920 wide
}

TEST(AxisWeightsTest, SumToOneAndStayInside) {
  for (const double side : {1.0, 3.0, 7.5, 20.0, 33.3, -9.0}) {
    for (const bool antialias : {false, true}) {
      const AxisGeometry axis = Make(20, 20, {.x = side, .y = 5}).x;
      const AxisWeights weights = MakeAxisWeights(
          axis, {Interpolation::kLinear, antialias}, {0, axis.out_size});
      ASSERT_EQ(weights.size(), axis.out_size);
      for (int64_t i = 0; i < weights.size(); ++i) {
        const int64_t first = weights.first[static_cast<size_t>(i)];
        EXPECT_GE(first, 0);
        EXPECT_LE(first + weights.taps, axis.in_size);
        const auto begin = weights.weights.begin() + i * weights.taps;
        EXPECT_NEAR(std::accumulate(begin, begin + weights.taps, 0.0), 1, 1e-6);
      }
    }
  }
}

// Of a picture that covers more than itself: what lies outside is its edge.
TEST(AxisWeightsTest, AddWhatLiesOutsideToTheEdge) {
  for (const double side : {0.11, 0.3, 0.9, 1.49, 2.5, 6.7, 19.6, 55.5}) {
    for (const double sign : {1.0, -1.0}) {
      const AxisGeometry axis = Make(20, 20, {.x = sign * side, .y = 5}).x;
      const AxisWeights weights = MakeAxisWeights(axis, {}, {0, axis.out_size});
      const double radius = std::max(1.0, std::abs(axis.step));
      for (int64_t i = 0; i < axis.out_size; ++i) {
        const double center =
            axis.origin + (static_cast<double>(i) + 0.5) * axis.step - 0.5;
        std::vector<double> exact(20);
        double sum = 0;
        for (int64_t k = -200; k < 220; ++k) {
          const double distance = std::abs(static_cast<double>(k) - center);
          const double weight = std::max(0.0, 1 - distance / radius);
          exact[static_cast<size_t>(std::clamp<int64_t>(k, 0, 19))] += weight;
          sum += weight;
        }
        const auto at = static_cast<size_t>(i);
        for (int64_t k = 0; k < 20; ++k) {
          const int64_t tap = k - weights.first[at];
          const bool read = tap >= 0 && tap < weights.taps;
          const float weight =
              read
                  ? weights.weights[static_cast<size_t>(i * weights.taps + tap)]
                  : 0;
          EXPECT_NEAR(weight, exact[static_cast<size_t>(k)] / sum, 1e-7)
              << side * sign << ": pixel " << i << " from " << k;
        }
      }
    }
  }
}

// Of this thread alone: other programs do not count.
double ThreadSeconds() {
  timespec time = {};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

// A table takes no longer for a filter that reaches ten times as far outside.
TEST(AxisWeightsTest, TakeTimeForTheirTapsAlone) {
  const auto seconds = [](double side) {
    const AxisGeometry axis = Make(kMaxResizedSide, 1, {.x = 1, .y = side}).y;
    double best = 1;
    for (int i = 0; i < 10; ++i) {
      const double start = ThreadSeconds();
      EXPECT_EQ(MakeAxisWeights(axis, {}, {0, 1}).taps, kMaxResizedSide);
      best = std::min(best, ThreadSeconds() - start);
    }
    return best;
  };
  EXPECT_LT(seconds(0.1), 4 * seconds(1));
}

TEST(AxisWeightsTest, TheSameSizeCopies) {
  const AxisGeometry axis = Make(6, 6, {}).x;
  const AxisWeights weights = MakeAxisWeights(axis, {}, {0, 6});
  ASSERT_EQ(weights.taps, 2);
  for (size_t i = 0; i < 6; ++i) {
    const auto own =
        static_cast<size_t>(static_cast<int64_t>(i) - weights.first[i]);
    EXPECT_EQ(weights.weights[i * 2 + own], 1.0f);
    EXPECT_EQ(weights.weights[i * 2 + 1 - own], 0.0f);
  }
}

TEST(AxisWeightsTest, NearestHasOneTap) {
  const AxisGeometry axis = Make(4, 8, {.x = 4, .y = 4}).x;
  const AxisWeights weights =
      MakeAxisWeights(axis, {Interpolation::kNearest, true}, {1, 4});
  EXPECT_EQ(weights.taps, 1);
  EXPECT_EQ(weights.first, (std::vector<int64_t>{3, 5, 7}));
}

}  // namespace
}  // namespace weir::image
