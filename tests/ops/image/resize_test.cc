#include "kernels/ops/image/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/ops/image/every_target.h"

namespace weir::image {
namespace {

template <typename T>
std::vector<T> RandomPixels(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<T> pixels(static_cast<size_t>(count));
  for (T& pixel : pixels) pixel = static_cast<T>(random() % 256);
  return pixels;
}

double Triangle(double x) { return std::max(0.0, 1 - std::abs(x)); }

// The definition, one output pixel at a time, over the whole source and the
// repeated edges around it, both axes at once.
template <typename T>
double ReferencePixel(const std::vector<T>& pixels, const ResizeGeometry& g,
                      const ResizeFilter& filter, int64_t channels, int64_t oy,
                      int64_t ox, int64_t channel) {
  const auto at = [&](int64_t y, int64_t x) {
    y = std::clamp<int64_t>(y, 0, g.y.in_size - 1);
    x = std::clamp<int64_t>(x, 0, g.x.in_size - 1);
    return static_cast<double>(pixels[static_cast<size_t>(
        (y * g.x.in_size + x) * channels + channel)]);
  };
  const double cy =
      g.y.origin + (static_cast<double>(oy) + 0.5) * g.y.step - 0.5;
  const double cx =
      g.x.origin + (static_cast<double>(ox) + 0.5) * g.x.step - 0.5;
  if (filter.interpolation == Interpolation::kNearest) {
    return at(static_cast<int64_t>(std::floor(cy + 0.5)),
              static_cast<int64_t>(std::floor(cx + 0.5)));
  }
  const double ry = filter.antialias ? std::max(1.0, std::abs(g.y.step)) : 1;
  const double rx = filter.antialias ? std::max(1.0, std::abs(g.x.step)) : 1;
  double sum = 0;
  double weights = 0;
  for (auto y = static_cast<int64_t>(std::floor(cy - ry));
       static_cast<double>(y) <= cy + ry; ++y) {
    for (auto x = static_cast<int64_t>(std::floor(cx - rx));
         static_cast<double>(x) <= cx + rx; ++x) {
      const double weight = Triangle((static_cast<double>(y) - cy) / ry) *
                            Triangle((static_cast<double>(x) - cx) / rx);
      sum += weight * at(y, x);
      weights += weight;
    }
  }
  return sum / weights;
}

struct Case {
  int64_t in_height;
  int64_t in_width;
  int64_t channels;
  ResizeSize size;
};

const Case kCases[] = {
    {48, 64, 3, {.shorter = 25.6}}, {17, 31, 3, {.x = 50, .y = 40}},
    {33, 9, 1, {.x = -20, .y = 7}}, {12, 40, 4, {.longer = 13}},
    {5, 5, 2, {.x = 5, .y = 5}},    {1, 1, 3, {.x = 4, .y = 3}},
    {40, 1, 3, {.y = 6}},           {9, 14, 3, {.x = 3, .y = -100}},
    {61, 67, 5, {.x = 10}},         {30, 30, 3, {.x = 1, .y = 1}},
    {7, 200, 3, {.shorter = 1}},    {8, 8, 3, {}},
};

const ResizeFilter kFilters[] = {
    {Interpolation::kNearest, false},
    {Interpolation::kLinear, false},
    {Interpolation::kLinear, true},
};

// Bounds: float32 sums of at most a few hundred taps of values up to 255.
constexpr double kFloatBound = 255 * 2e-6;

template <typename In, typename Out>
void CheckAll() {
  for (const Case& c : kCases) {
    const auto in = RandomPixels<In>(c.in_height * c.in_width * c.channels, 5);
    const auto geometry = MakeResizeGeometry(c.in_height, c.in_width, c.size);
    ASSERT_TRUE(geometry.ok()) << geometry.status();
    for (const ResizeFilter& filter : kFilters) {
      const ResizePlan plan = ResizePlan::Create(*geometry, filter);
      const int64_t height = plan.out_height();
      const int64_t width = plan.out_width();
      std::vector<Out> out(static_cast<size_t>(height * width * c.channels));
      std::vector<float> scratch(
          static_cast<size_t>(plan.ScratchFloats(c.channels)));
      ASSERT_TRUE(Resize(plan,
                         DenseView<const In>(in.data(), c.in_height, c.in_width,
                                             c.channels),
                         DenseView(out.data(), height, width, c.channels),
                         {scratch})
                      .ok());
      size_t i = 0;
      for (int64_t y = 0; y < height; ++y) {
        for (int64_t x = 0; x < width; ++x) {
          for (int64_t channel = 0; channel < c.channels; ++channel, ++i) {
            const double expected = ReferencePixel(in, *geometry, filter,
                                                   c.channels, y, x, channel);
            if constexpr (std::is_same_v<Out, float>) {
              ASSERT_NEAR(out[i], expected, kFloatBound);
            } else {
              ASSERT_LE(std::abs(out[i] - expected), 0.5 + kFloatBound);
            }
          }
        }
      }
    }
  }
}

TEST(ResizeTest, BytesToFloatsMatchTheDefinition) {
  OnEveryTarget([](const char* target) {
    SCOPED_TRACE(target);
    CheckAll<uint8_t, float>();
  });
}
TEST(ResizeTest, BytesToBytesMatchTheDefinition) {
  OnEveryTarget([](const char* target) {
    SCOPED_TRACE(target);
    CheckAll<uint8_t, uint8_t>();
  });
}
TEST(ResizeTest, FloatsToFloatsMatchTheDefinition) {
  OnEveryTarget([](const char* target) {
    SCOPED_TRACE(target);
    CheckAll<float, float>();
  });
}
TEST(ResizeTest, FloatsToBytesMatchTheDefinition) {
  OnEveryTarget([](const char* target) {
    SCOPED_TRACE(target);
    CheckAll<float, uint8_t>();
  });
}

// Whether the source pixel k, of n, has a weight in the output pixel i, of o:
// in integers, whose unit is 1 / (2 * o) of a source pixel.
bool HasWeight(int64_t n, int64_t o, bool antialias, int64_t i, int64_t k) {
  const int64_t center = (2 * i + 1) * n - o;
  const int64_t radius = 2 * (antialias ? std::max(n, o) : o);
  for (int64_t at = -2 * n; at < 3 * n; ++at) {
    if (std::clamp<int64_t>(at, 0, n - 1) != k) continue;
    if (std::abs(2 * o * at - center) < radius) return true;
  }
  return false;
}

// Weights that are 0 but for the rounding of a center count as such.
TEST(ResizeTest, NotANumberReachesOnlyWhereItHasWeight) {
  OnEveryTarget([](const char* target) {
    SCOPED_TRACE(target);
    std::vector<std::pair<int64_t, int64_t>> sizes = {
        {2, 98}, {3, 47}, {5, 77}, {6, 94}, {64, 8}};
    for (int64_t n = 1; n < 10; ++n) {
      for (int64_t o = 1; o < 10; ++o) sizes.emplace_back(n, o);
    }
    for (const auto& [n, o] : sizes) {
      const auto geometry =
          MakeResizeGeometry(
              n, n, {.x = static_cast<double>(o), .y = static_cast<double>(o)})
              .value();
      for (const bool antialias : {false, true}) {
        const ResizePlan plan =
            ResizePlan::Create(geometry, {Interpolation::kLinear, antialias});
        for (int64_t pixel = 0; pixel < 3 * n; ++pixel) {
          const int64_t channels = pixel % 3 + 2, k = pixel / 3;
          std::vector<float> in(static_cast<size_t>(n * n * channels));
          std::vector<float> out(static_cast<size_t>(o * o * channels));
          std::fill_n(in.begin() + (k * n + k) * channels, channels,
                      k % 2 == 0 ? NAN : INFINITY);
          std::vector<float> scratch(
              static_cast<size_t>(plan.ScratchFloats(channels)));
          ASSERT_TRUE(Resize(plan,
                             DenseView<const float>(in.data(), n, n, channels),
                             DenseView(out.data(), o, o, channels), {scratch})
                          .ok());
          for (int64_t i = 0; i < o * o * channels; ++i) {
            const int64_t y = i / channels / o, x = i / channels % o;
            ASSERT_EQ(std::isfinite(out[static_cast<size_t>(i)]),
                      !HasWeight(n, o, antialias, y, k) ||
                          !HasWeight(n, o, antialias, x, k))
                << n << " to " << o << ", pixel " << k << " in " << y << ", "
                << x;
          }
        }
      }
    }
  });
}

TEST(ResizeTest, ReadsAndWritesViewsWithGapsBetweenRows) {
  constexpr int64_t kStride = 40;
  const auto in = RandomPixels<uint8_t>(10 * kStride, 3);
  const auto geometry = MakeResizeGeometry(10, 12, {.x = 7, .y = 5});
  ASSERT_TRUE(geometry.ok());
  const ResizePlan plan = ResizePlan::Create(*geometry, {});
  std::vector<float> scratch(static_cast<size_t>(plan.ScratchFloats(3)));
  constexpr uint8_t kUntouched = 0xA5;
  std::vector<uint8_t> out(5 * kStride, kUntouched);
  ASSERT_TRUE(
      Resize(plan, ImageView<const uint8_t>{in.data(), 10, 12, 3, kStride},
             ImageView<uint8_t>{out.data(), 5, 7, 3, kStride}, {scratch})
          .ok());
  for (size_t y = 0; y < 5; ++y) {
    for (size_t x = 7 * 3; x < kStride; ++x) {
      EXPECT_EQ(out[y * kStride + x], kUntouched);
    }
  }
}

TEST(ResizeTest, SaturatesAndSurvivesNotANumber) {
  const std::vector<float> in = {-5.0f, 300.0f, std::nanf(""), 2.5f};
  const auto geometry = MakeResizeGeometry(1, 4, {.x = 4, .y = 1});
  ASSERT_TRUE(geometry.ok());
  const ResizePlan plan =
      ResizePlan::Create(*geometry, {Interpolation::kNearest, false});
  std::vector<uint8_t> out(4);
  ASSERT_TRUE(Resize(plan, DenseView(in.data(), 1, 4, 1),
                     DenseView(out.data(), 1, 4, 1), {})
                  .ok());
  EXPECT_EQ(out, (std::vector<uint8_t>{0, 255, 0, 3}));
}

TEST(ResizeTest, RefusesViewsThatDoNotFit) {
  const auto geometry = MakeResizeGeometry(4, 4, {.x = 2, .y = 2});
  ASSERT_TRUE(geometry.ok());
  const ResizePlan plan = ResizePlan::Create(*geometry, {});
  std::vector<uint8_t> in(4 * 4 * 3);
  std::vector<uint8_t> out(2 * 2 * 3);
  std::vector<float> scratch(static_cast<size_t>(plan.ScratchFloats(3)));
  const auto source = DenseView<const uint8_t>(in.data(), 4, 4, 3);
  const auto target = DenseView(out.data(), 2, 2, 3);
  EXPECT_TRUE(Resize(plan, source, target, {scratch}).ok());
  EXPECT_FALSE(Resize(plan, source, target, {}).ok());
  EXPECT_FALSE(Resize(plan, DenseView<const uint8_t>(in.data(), 4, 3, 3),
                      target, {scratch})
                   .ok());
  EXPECT_FALSE(
      Resize(plan, source, DenseView(out.data(), 2, 2, 1), {scratch}).ok());
}

}  // namespace
}  // namespace weir::image
