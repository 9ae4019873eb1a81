#include "kernels/ops/image/image_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "tests/ops/image/test_images.h"

namespace weir::image {
namespace {

using ::testing::HasSubstr;

void ExpectRefused(const absl::StatusOr<ImageInfo>& info,
                   const std::string& cause) {
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(info.status().message()), HasSubstr(cause));
}

Bytes TextBytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes(bytes.begin(), bytes.end());
}

TEST(PeekImageTest, ReadsJpegSizeAndChannels) {
  for (const int channels : {1, 3, 4}) {
    const Bytes file =
        EncodeJpeg(SmoothPicture(20, 30, channels), 20, 30, channels);
    const auto info = PeekImage(file);
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->format, ImageFormat::kJpeg);
    EXPECT_EQ(info->width, 30);
    EXPECT_EQ(info->height, 20);
    EXPECT_EQ(info->channels, channels);
    EXPECT_EQ(info->orientation, Orientation::kUpright);
  }
}

TEST(PeekImageTest, ReadsPngSizeAndChannels) {
  struct Case {
    int color_type;
    int stored_samples;
    int channels;
  };
  for (const Case& c : {Case{0, 1, 1}, Case{2, 3, 3}, Case{3, 1, 3},
                        Case{4, 2, 2}, Case{6, 4, 4}}) {
    const std::vector<uint16_t> samples(
        static_cast<size_t>(7 * 5 * c.stored_samples), 9);
    const auto info =
        PeekImage(EncodePng(samples, 5, 7, {.color_type = c.color_type}));
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->format, ImageFormat::kPng);
    EXPECT_EQ(info->width, 7);
    EXPECT_EQ(info->height, 5);
    EXPECT_EQ(info->channels, c.channels);
  }
}

TEST(PeekImageTest, ReadsOrientationOfBothByteOrders) {
  const std::vector<uint8_t> pixels = SmoothPicture(4, 6, 3);
  const std::vector<uint16_t> samples(4 * 6 * 3, 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool little : {true, false}) {
      const auto jpeg = PeekImage(EncodeJpeg(
          pixels, 4, 6, 3,
          {.orientation = orientation, .little_endian_exif = little}));
      ASSERT_TRUE(jpeg.ok()) << jpeg.status();
      EXPECT_EQ(static_cast<int>(jpeg->orientation), orientation);
      EXPECT_EQ(jpeg->UprightWidth(), orientation >= 5 ? 4 : 6);
      EXPECT_EQ(jpeg->UprightHeight(), orientation >= 5 ? 6 : 4);
    }
    const auto png =
        PeekImage(EncodePng(samples, 4, 6, {.orientation = orientation}));
    ASSERT_TRUE(png.ok()) << png.status();
    EXPECT_EQ(static_cast<int>(png->orientation), orientation);
  }
}

// The chunk may stand anywhere but between those of the pixels.
TEST(PeekImageTest, ReadsTheOrientationPastThePixelsOfAPng) {
  const std::vector<uint16_t> samples(4 * 6 * 3, 1);
  const auto at = [&](Orientation orientation, bool past_pixels) {
    return EncodePng(samples, 4, 6,
                     {.orientation = static_cast<int>(orientation),
                      .exif_past_pixels = past_pixels,
                      .chunk_bytes = 10});
  };
  const Bytes file = at(Orientation::kTurnRight, true);
  const auto info = PeekImage(file);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->orientation, Orientation::kTurnRight);
  EXPECT_EQ(info->UprightWidth(), 4);
  // The header, nine chunks of pixels, EXIF and its entry.
  EXPECT_EQ(info->header_parts, 1 + 9 + 1 + 1);
  // Of two the first counts.
  Bytes two = at(Orientation::kUpsideDown, false);
  constexpr size_t kExif = 12 + 26, kEnd = 12;
  two.insert(two.end() - kEnd, file.end() - kEnd - kExif, file.end() - kEnd);
  ASSERT_TRUE(PeekImage(two).ok());
  EXPECT_EQ(PeekImage(two)->orientation, Orientation::kUpsideDown);
  // What ends early there is the decoder's to refuse.
  for (size_t size = file.size() - kEnd - kExif; size < file.size(); ++size) {
    const auto cut = PeekImage(std::span(file).first(size));
    ASSERT_TRUE(cut.ok()) << cut.status();
    EXPECT_EQ(cut->orientation, size < file.size() - kEnd
                                    ? Orientation::kUpright
                                    : Orientation::kTurnRight);
  }
}

TEST(PeekImageTest, TakesABrokenOrientationAsUpright) {
  const auto plain = PeekImage(EncodeJpeg(SmoothPicture(4, 6, 3), 4, 6, 3));
  const auto info = PeekImage(
      EncodeJpeg(SmoothPicture(4, 6, 3), 4, 6, 3, {.orientation = 9}));
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(info.ok()) << info.status();
  // The segment and its entry.
  EXPECT_EQ(info->header_parts, plain->header_parts + 2);
  EXPECT_EQ(info->orientation, Orientation::kUpright);
}

TEST(PeekImageTest, RefusesWhatIsNoPicture) {
  ExpectRefused(PeekImage({}), "no bytes");
  ExpectRefused(PeekImage(TextBytes("not a picture")), "neither JPEG nor PNG");
  ExpectRefused(PeekImage(Bytes(1, std::byte{0xFF})), "ends inside");
  ExpectRefused(PeekImage(Bytes(1, std::byte{0x89})), "ends inside");
}

TEST(PeekImageTest, RefusesEveryCutInsideTheHeaders) {
  const Bytes jpeg = EncodeJpeg(SmoothPicture(8, 8, 3), 8, 8, 3);
  size_t scan = 0;
  while (jpeg[scan] != std::byte{0xFF} || jpeg[scan + 1] != std::byte{0xDA}) {
    ++scan;
  }
  for (size_t size = 1; size < scan + 2; ++size) {
    EXPECT_FALSE(PeekImage(std::span(jpeg).first(size)).ok()) << size;
  }
  const std::vector<uint16_t> samples(8 * 8 * 3, 1);
  const Bytes png = EncodePng(samples, 8, 8);
  constexpr size_t kPngHeaders = 8 + 25 + 8;
  for (size_t size = 1; size < kPngHeaders; ++size) {
    EXPECT_FALSE(PeekImage(std::span(png).first(size)).ok()) << size;
  }
}

TEST(PeekImageTest, RefusesAHugeClaimWithTheLimitInTheMessage) {
  ExpectRefused(PeekImage(PngClaiming(60000, 60000)),
                "claims 60000 x 60000 pixels; the limit is 16384 per side");
  ExpectRefused(PeekImage(JpegClaiming(60000, 60000)),
                "claims 60000 x 60000 pixels; the limit is 16384 per side");
  ExpectRefused(PeekImage(PngClaiming(0xFFFFFFFF, 0xFFFFFFFF)), "the limit is");
  // Each side is allowed, the area is not.
  ExpectRefused(PeekImage(PngClaiming(16384, 16384)), "67108864 in all");
}

TEST(PeekImageTest, RefusesAClaimThatTheFileCannotHold) {
  ExpectRefused(PeekImage(PngClaiming(4000, 16000)), "bytes cannot hold");
  ExpectRefused(PeekImage(JpegClaiming(4000, 16000)), "bytes cannot hold");
}

TEST(PeekImageTest, RefusesAPictureWithoutPixels) {
  ExpectRefused(PeekImage(PngClaiming(0, 5)), "has no pixels");
  ExpectRefused(PeekImage(JpegClaiming(5, 0)), "has no pixels");
}

// Headers are read before anything else is known of a call.
TEST(PeekImageTest, LooksForAHeaderOnlySoFar) {
  const auto at = [](Bytes file, size_t position, size_t copies, Bytes what) {
    Bytes added;
    for (size_t i = 0; i < copies; ++i) {
      added.insert(added.end(), what.begin(), what.end());
    }
    file.insert(file.begin() + static_cast<std::ptrdiff_t>(position),
                added.begin(), added.end());
    return file;
  };
  const auto bytes = [](std::initializer_list<int> values) {
    Bytes made;
    for (const int value : values)
      made.push_back(static_cast<std::byte>(value));
    return made;
  };
  const Bytes jpeg = EncodeJpeg(SmoothPicture(8, 8, 3), 8, 8, 3);
  const int64_t own = PeekImage(jpeg)->header_parts;
  EXPECT_GT(own, 0);
  EXPECT_LT(own, 50);
  for (const Bytes& filling : {bytes({0x00}), bytes({0xFF})}) {
    EXPECT_EQ(PeekImage(at(jpeg, 2, 1000, filling))->header_parts, own + 1000);
    ExpectRefused(PeekImage(at(jpeg, 2, 10'000, filling)),
                  "more than 4096 bytes of filling");
  }
  for (const Bytes& segment :
       {bytes({0xFF, 0xE3, 0x00, 0x02}), bytes({0xFF, 0x01})}) {
    EXPECT_EQ(PeekImage(at(jpeg, 2, 1000, segment))->header_parts, own + 1000);
    ExpectRefused(PeekImage(at(jpeg, 2, 5000, segment)),
                  "more than 4096 segments");
  }
  const std::vector<uint16_t> samples(8 * 8 * 3, 1);
  const Bytes png = EncodePng(samples, 8, 8);
  const Bytes chunk = bytes({0, 0, 0, 0, 't', 'E', 'X', 't', 0, 0, 0, 0});
  constexpr size_t kAfterHeader = 8 + 25;
  const int64_t png_own = PeekImage(png)->header_parts;
  EXPECT_EQ(PeekImage(at(png, kAfterHeader, 1000, chunk))->header_parts,
            png_own + 1000);
  ExpectRefused(PeekImage(at(png, kAfterHeader, 5000, chunk)),
                "more than 4096 chunks before its picture");
  // Behind them, where pixels may be in as many chunks as encoders make.
  const size_t end = png.size() - 12;
  EXPECT_EQ(PeekImage(at(png, end, 50'000, chunk))->header_parts,
            png_own + 50'000);
  ExpectRefused(PeekImage(at(png, end, 70'000, chunk)),
                "more than 65536 chunks");
  // Also of one whose orientation is known before its pixels, and with empty
  // chunks of these.
  const Bytes turned = EncodePng(samples, 8, 8, {.orientation = 3});
  const size_t turned_end = turned.size() - 12;
  const Bytes pixels = bytes({0, 0, 0, 0, 'I', 'D', 'A', 'T', 0, 0, 0, 0});
  for (const auto& filling : {chunk, pixels}) {
    EXPECT_EQ(PeekImage(at(turned, turned_end, 50'000, filling))->orientation,
              Orientation::kUpsideDown);
    ExpectRefused(PeekImage(at(turned, turned_end, 70'000, filling)),
                  "more than 65536 chunks");
  }
  // And past one that stands behind the pixels.
  const Bytes late =
      EncodePng(samples, 8, 8, {.orientation = 3, .exif_past_pixels = true});
  ExpectRefused(PeekImage(at(late, late.size() - 12, 70'000, chunk)),
                "more than 65536 chunks");
}

TEST(PeekImageTest, KnowsWhatIsDecodedInSeveralScans) {
  const std::vector<uint8_t> pixels = SmoothPicture(8, 8, 3);
  const auto several = [&](const JpegOptions& options) {
    return PeekImage(EncodeJpeg(pixels, 8, 8, 3, options))->several_scans;
  };
  EXPECT_FALSE(several({}));
  EXPECT_TRUE(several({.progressive = true}));
  EXPECT_TRUE(several({.scan_for_each = true}));
}

// Its decoders cannot tell data that was cut.
TEST(PeekImageTest, RefusesArithmeticCoding) {
  const std::vector<uint8_t> pixels = SmoothPicture(8, 8, 3);
  for (const bool progressive : {false, true}) {
    ExpectRefused(
        PeekImage(EncodeJpeg(pixels, 8, 8, 3,
                             {.progressive = progressive, .arithmetic = true})),
        "arithmetic) is not supported");
  }
}

// A decoder that knows YCbCr alone gives such a picture false colors.
TEST(PeekImageTest, KnowsWhatIsStoredAsRgb) {
  const std::vector<uint8_t> pixels = SmoothPicture(8, 8, 3);
  const auto stored_rgb = [&](const JpegOptions& options) {
    const Bytes file = EncodeJpeg(pixels, 8, 8, 3, options);
    const auto info = PeekImage(file);
    EXPECT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->stored_rgb, IsRgbToLibjpeg(file));
    return info->stored_rgb;
  };
  EXPECT_FALSE(stored_rgb({}));
  EXPECT_TRUE(stored_rgb({.rgb = true}));
  EXPECT_TRUE(stored_rgb({.progressive = true, .rgb = true}));
  EXPECT_TRUE(stored_rgb({.rgb = true, .named_components = false}));
  EXPECT_TRUE(stored_rgb({.rgb = true, .adobe_marker = false}));
  EXPECT_FALSE(stored_rgb(
      {.rgb = true, .adobe_marker = false, .named_components = false}));
  // Who says JFIF says YCbCr.
  EXPECT_FALSE(stored_rgb({.rgb = true, .jfif_marker = true}));
  EXPECT_FALSE(
      stored_rgb({.rgb = true, .jfif_marker = true, .adobe_marker = false}));
  // Adobe's marker names YCbCr too, whatever the components are called.
  Bytes file = EncodeJpeg(pixels, 8, 8, 3, {.rgb = true});
  constexpr std::string_view kAdobe = "Adobe";
  const auto adobe = std::search(
      file.begin(), file.end(), kAdobe.begin(), kAdobe.end(),
      [](std::byte a, char b) { return a == static_cast<std::byte>(b); });
  ASSERT_NE(adobe, file.end());
  for (const uint8_t transform : {0, 1, 2, 3}) {
    adobe[11] = std::byte{transform};
    EXPECT_EQ(PeekImage(file)->stored_rgb, transform == 0);
    EXPECT_EQ(IsRgbToLibjpeg(file), transform == 0);
  }
  EXPECT_FALSE(
      PeekImage(EncodeJpeg(SmoothPicture(8, 8, 1), 8, 8, 1))->stored_rgb);
  EXPECT_FALSE(
      PeekImage(EncodeJpeg(SmoothPicture(8, 8, 4), 8, 8, 4))->stored_rgb);
}

// What nvJPEG is given; the rest is for the CPU's decoder on every device.
TEST(PeekImageTest, KnowsPlainJpegs) {
  const auto plain = [](int64_t channels, const JpegOptions& options) {
    const Bytes file =
        EncodeJpeg(SmoothPicture(8, 8, channels), 8, 8, channels, options);
    return PeekImage(file)->IsPlainJpeg();
  };
  EXPECT_TRUE(plain(1, {}));
  EXPECT_TRUE(plain(3, {}));
  EXPECT_TRUE(plain(3, {.progressive = true}));
  EXPECT_FALSE(plain(3, {.rgb = true}));
  EXPECT_FALSE(plain(4, {}));
  const std::vector<uint16_t> samples(8 * 8 * 3, 1);
  EXPECT_FALSE(PeekImage(EncodePng(samples, 8, 8))->IsPlainJpeg());
}

TEST(PeekImageTest, TakesLimitsFromTheCaller) {
  const Bytes file = EncodeJpeg(SmoothPicture(20, 30, 3), 20, 30, 3);
  EXPECT_TRUE(PeekImage(file, {.max_side = 30, .max_pixels = 600}).ok());
  EXPECT_FALSE(PeekImage(file, {.max_side = 29, .max_pixels = 600}).ok());
  EXPECT_FALSE(PeekImage(file, {.max_side = 30, .max_pixels = 599}).ok());
}

}  // namespace
}  // namespace weir::image
