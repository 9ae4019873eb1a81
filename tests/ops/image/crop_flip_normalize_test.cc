#include "kernels/ops/image/crop_flip_normalize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/ops/image/every_target.h"

namespace weir::image {
namespace {

// A view of `height` rows and `width` columns beginning at (y, x).
template <typename T>
ImageView<T> CropView(ImageView<T> image, int64_t y, int64_t x, int64_t height,
                      int64_t width) {
  return {image.Row(y) + x * image.channels, height, width, image.channels,
          image.row_stride};
}

TEST(CropAnchorTest, IsTheScaledRestWithTiesUp) {
  EXPECT_EQ(*CropAnchor(256, 224, 0.5), 16);
  EXPECT_EQ(*CropAnchor(341, 224, 0.5), 59);  // 58.5
  EXPECT_EQ(*CropAnchor(10, 3, 0), 0);
  EXPECT_EQ(*CropAnchor(10, 3, 1), 7);
  EXPECT_EQ(*CropAnchor(10, 10, 0.7), 0);
  EXPECT_EQ(*CropAnchor(10, 9, 0.25), 0);
  EXPECT_EQ(*CropAnchor(10, 9, 0.5), 1);
}

TEST(CropAnchorTest, RefusesWhatCannotBe) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(CropAnchor(10, 11, 0.5).status().code(), kInvalid);
  EXPECT_EQ(CropAnchor(10, 0, 0.5).status().code(), kInvalid);
  EXPECT_EQ(CropAnchor(10, -1, 0.5).status().code(), kInvalid);
  EXPECT_EQ(CropAnchor(10, 5, 1.01).status().code(), kInvalid);
  EXPECT_EQ(CropAnchor(10, 5, -0.01).status().code(), kInvalid);
  EXPECT_EQ(CropAnchor(10, 5, std::nan("")).status().code(), kInvalid);
}

std::vector<uint8_t> RandomBytes(int64_t count) {
  std::mt19937 random(11);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random() & 0xFF);
  return bytes;
}

TEST(FlipPixelsTest, MovesWholePixels) {
  constexpr int64_t kHeight = 5;
  constexpr int64_t kWidth = 7;
  for (const int64_t pixel : {1, 2, 3, 4, 6, 8, 12}) {
    const std::vector<uint8_t> in = RandomBytes(kHeight * kWidth * pixel);
    for (const bool horizontal : {false, true}) {
      for (const bool vertical : {false, true}) {
        std::vector<uint8_t> out(in.size());
        FlipPixels(DenseView(in.data(), kHeight, kWidth, pixel), horizontal,
                   vertical, DenseView(out.data(), kHeight, kWidth, pixel));
        for (int64_t y = 0; y < kHeight; ++y) {
          for (int64_t x = 0; x < kWidth; ++x) {
            const int64_t fy = vertical ? kHeight - 1 - y : y;
            const int64_t fx = horizontal ? kWidth - 1 - x : x;
            for (int64_t b = 0; b < pixel; ++b) {
              ASSERT_EQ(
                  out[static_cast<size_t>((fy * kWidth + fx) * pixel + b)],
                  in[static_cast<size_t>((y * kWidth + x) * pixel + b)]);
            }
          }
        }
      }
    }
  }
}

TEST(FlipPixelsTest, CopiesACropView) {
  const std::vector<uint8_t> in = RandomBytes(6 * 8 * 3);
  std::vector<uint8_t> out(2 * 4 * 3);
  FlipPixels(CropView(DenseView(in.data(), 6, 8, 3), 3, 2, 2, 4), false, false,
             DenseView(out.data(), 2, 4, 3));
  for (size_t y = 0; y < 2; ++y) {
    for (size_t x = 0; x < 4 * 3; ++x) {
      EXPECT_EQ(out[y * 12 + x], in[(y + 3) * 24 + 2 * 3 + x]);
    }
  }
}

const std::vector<float> kMean = {123.675f, 116.28f, 103.53f};
const std::vector<float> kStddev = {58.395f, 57.12f, 57.375f};

double Reference(double value, size_t channel, const Normalization& n) {
  const double mean = n.mean[n.mean.size() == 1 ? 0 : channel];
  const double stddev = n.stddev[n.stddev.size() == 1 ? 0 : channel];
  return (value - mean) / stddev * double{n.scale} + double{n.shift};
}

// Three roundings and the rounded factor, relative to the largest term.
double Bound(double reference, const Normalization& n) {
  return 4 * 6e-8 * (std::abs(reference) + std::abs(double{n.shift}) + 1);
}

template <typename T>
void CheckNormalize(int64_t channels, const Normalization& n) {
  for (const int64_t width : {1, 5, 16, 37}) {
    constexpr int64_t kHeight = 4;
    const std::vector<uint8_t> bytes =
        RandomBytes(kHeight * (width + 3) * channels);
    const std::vector<T> pixels(bytes.begin(), bytes.end());
    const auto in = CropView(
        DenseView<const T>(pixels.data(), kHeight, width + 3, channels), 0, 2,
        kHeight, width);
    const auto size = static_cast<size_t>(kHeight * width * channels);
    std::vector<float> interleaved(size);
    Normalize(in, n, DenseView(interleaved.data(), kHeight, width, channels));
    for (const bool horizontal : {false, true}) {
      for (const bool vertical : {false, true}) {
        std::vector<float> planes(size);
        MirrorNormalizeToPlanes(in, horizontal, vertical, n,
                                {planes.data(), kHeight * width, width});
        for (int64_t y = 0; y < kHeight; ++y) {
          for (int64_t x = 0; x < width; ++x) {
            for (int64_t c = 0; c < channels; ++c) {
              const double expected =
                  Reference(static_cast<double>(in.Row(y)[x * channels + c]),
                            static_cast<size_t>(c), n);
              const double bound = Bound(expected, n);
              ASSERT_NEAR(interleaved[static_cast<size_t>(
                              (y * width + x) * channels + c)],
                          expected, bound);
              const int64_t ty = vertical ? kHeight - 1 - y : y;
              const int64_t tx = horizontal ? width - 1 - x : x;
              ASSERT_NEAR(
                  planes[static_cast<size_t>((c * kHeight + ty) * width + tx)],
                  expected, bound);
            }
          }
        }
      }
    }
  }
}

TEST(NormalizeTest, MatchesTheDefinition) {
  const std::vector<float> one_mean = {100};
  const std::vector<float> one_stddev = {-0.5f};
  const Normalization per_channel{.mean = kMean, .stddev = kStddev};
  const Normalization shared{
      .mean = one_mean, .stddev = one_stddev, .scale = 3, .shift = -7};
  OnEveryTarget([&](const char* target) {
    SCOPED_TRACE(target);
    CheckNormalize<uint8_t>(3, per_channel);
    CheckNormalize<float>(3, per_channel);
    for (const int64_t channels : {1, 2, 3, 4}) {
      CheckNormalize<uint8_t>(channels, shared);
      CheckNormalize<float>(channels, shared);
    }
  });
}

TEST(CheckNormalizationTest, NamesWhatDoesNotFit) {
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const std::vector<float> zero = {0};
  const std::vector<float> infinite = {std::numeric_limits<float>::infinity()};
  const std::vector<float> one = {1};
  EXPECT_TRUE(CheckNormalization({.mean = kMean, .stddev = kStddev}, 3).ok());
  EXPECT_TRUE(CheckNormalization({.mean = one, .stddev = one}, 7).ok());
  EXPECT_EQ(CheckNormalization({.mean = kMean, .stddev = one}, 4).code(),
            kInvalid);
  EXPECT_EQ(CheckNormalization({.mean = {}, .stddev = one}, 3).code(),
            kInvalid);
  EXPECT_EQ(CheckNormalization({.mean = one, .stddev = zero}, 3).code(),
            kInvalid);
  EXPECT_EQ(CheckNormalization({.mean = one, .stddev = infinite}, 3).code(),
            kInvalid);
  // What a difference is multiplied by: no difference, and it were no number.
  const std::vector<float> tiny = {1, 1e-38F, 1};
  EXPECT_TRUE(CheckNormalization({.mean = one, .stddev = tiny}, 3).ok());
  const absl::Status status =
      CheckNormalization({.mean = one, .stddev = tiny, .scale = 255}, 3);
  EXPECT_EQ(status.code(), kInvalid);
  for (const char* const word : {"scale of 255", "stddev of 1e-38"}) {
    EXPECT_NE(status.message().find(word), absl::string_view::npos) << status;
  }
  const std::vector<float> denormal = {1e-39F};
  EXPECT_EQ(CheckNormalization({.mean = one, .stddev = denormal}, 3).code(),
            kInvalid);
  EXPECT_EQ(
      CheckNormalization({.mean = one, .stddev = one, .scale = infinite[0]}, 3)
          .code(),
      kInvalid);
}

}  // namespace
}  // namespace weir::image
