#include "kernels/ops/image/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "tests/ops/image/decode_image.h"
#include "tests/ops/image/test_images.h"

namespace weir::image {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHeight = 37;
constexpr int64_t kWidth = 53;

int MaxDifference(const std::vector<uint8_t>& a,
                  const std::vector<uint8_t>& b) {
  int largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  }
  return largest;
}

std::vector<uint16_t> Widen(const std::vector<uint8_t>& pixels) {
  return {pixels.begin(), pixels.end()};
}

TEST(DecodeJpegTest, ReturnsRgbOfEveryEncoding) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  for (const JpegOptions& options :
       {JpegOptions{}, JpegOptions{.progressive = true},
        JpegOptions{.subsampled = true}, JpegOptions{.scan_for_each = true},
        JpegOptions{.rgb = true},
        JpegOptions{.rgb = true, .adobe_marker = false}}) {
    const auto image =
        DecodeImage(EncodeJpeg(pixels, kHeight, kWidth, 3, options));
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->height, kHeight);
    EXPECT_EQ(image->width, kWidth);
    ASSERT_EQ(image->pixels.size(), pixels.size());
    EXPECT_LE(MaxDifference(image->pixels, pixels), 8);
  }
}

TEST(DecodeJpegTest, ReplicatesGrey) {
  const std::vector<uint8_t> grey = SmoothPicture(kHeight, kWidth, 1);
  const auto image = DecodeImage(EncodeJpeg(grey, kHeight, kWidth, 1));
  ASSERT_TRUE(image.ok()) << image.status();
  for (size_t i = 0; i < grey.size(); ++i) {
    EXPECT_EQ(image->pixels[3 * i], image->pixels[3 * i + 1]);
    EXPECT_EQ(image->pixels[3 * i], image->pixels[3 * i + 2]);
    EXPECT_NEAR(image->pixels[3 * i], grey[i], 4);
  }
}

TEST(DecodeJpegTest, ConvertsAdobeCmyk) {
  // Inverted: 255 is no ink. A flat color survives compression.
  std::vector<uint8_t> cmyk;
  for (int i = 0; i < 16 * 16; ++i) {
    for (const uint8_t ink : {200, 100, 50, 255}) cmyk.push_back(ink);
  }
  const auto image = DecodeImage(EncodeJpeg(cmyk, 16, 16, 4));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_NEAR(image->pixels[0], 200, 2);
  EXPECT_NEAR(image->pixels[1], 100, 2);
  EXPECT_NEAR(image->pixels[2], 50, 2);
}

TEST(DecodePngTest, IsExactForEveryColorTypeAndInterlacing) {
  const std::vector<uint8_t> rgb = SmoothPicture(kHeight, kWidth, 3);
  const std::vector<uint8_t> rgba = SmoothPicture(kHeight, kWidth, 4);
  const std::vector<uint8_t> grey = SmoothPicture(kHeight, kWidth, 1);
  const std::vector<uint8_t> grey_alpha = SmoothPicture(kHeight, kWidth, 2);
  for (const bool interlaced : {false, true}) {
    const auto decode = [&](const std::vector<uint8_t>& samples, int type) {
      auto image = DecodeImage(
          EncodePng(Widen(samples), kHeight, kWidth,
                    {.color_type = type, .interlaced = interlaced}));
      EXPECT_TRUE(image.ok()) << image.status();
      return image.ok() ? image->pixels : std::vector<uint8_t>(rgb.size());
    };
    EXPECT_EQ(decode(rgb, 2), rgb);
    const std::vector<uint8_t> from_rgba = decode(rgba, 6);
    const std::vector<uint8_t> from_grey = decode(grey, 0);
    const std::vector<uint8_t> from_grey_alpha = decode(grey_alpha, 4);
    const std::vector<uint8_t> from_palette = decode(grey, 3);
    for (size_t i = 0; i < grey.size(); ++i) {
      for (size_t c = 0; c < 3; ++c) {
        ASSERT_EQ(from_rgba[3 * i + c], rgba[4 * i + c]);
        ASSERT_EQ(from_grey[3 * i + c], grey[i]);
        ASSERT_EQ(from_grey_alpha[3 * i + c], grey_alpha[2 * i]);
      }
      ASSERT_EQ(from_palette[3 * i], grey[i]);
      ASSERT_EQ(from_palette[3 * i + 1], 255 - grey[i]);
      ASSERT_EQ(from_palette[3 * i + 2], grey[i] / 2);
    }
  }
}

TEST(DecodePngTest, LooksUpPalettesOfEveryDepth) {
  constexpr int64_t kOddHeight = 7, kOddWidth = 13;
  for (const int depth : {1, 2, 4, 8}) {
    std::vector<uint16_t> indices;
    for (int i = 0; i < kOddHeight * kOddWidth; ++i) {
      indices.push_back(static_cast<uint16_t>((i * 5 + i / 9) % (1 << depth)));
    }
    for (const bool interlaced : {false, true}) {
      SCOPED_TRACE(testing::Message() << depth << " bits, " << interlaced);
      const auto image = DecodeImage(EncodePng(
          indices, kOddHeight, kOddWidth,
          {.color_type = 3, .bit_depth = depth, .interlaced = interlaced}));
      ASSERT_TRUE(image.ok()) << image.status();
      for (size_t i = 0; i < indices.size(); ++i) {
        ASSERT_EQ(image->pixels[3 * i], indices[i]) << i;
        ASSERT_EQ(image->pixels[3 * i + 1], 255 - indices[i]) << i;
        ASSERT_EQ(image->pixels[3 * i + 2], indices[i] / 2) << i;
      }
    }
  }
}

// Not black: such data is damaged.
TEST(DecodePngTest, RefusesColorsThatItsPaletteLacks) {
  for (const int depth : {2, 4, 8}) {
    for (const bool interlaced : {false, true}) {
      const auto decode = [&](uint16_t last) {
        return DecodeImage(EncodePng(std::vector<uint16_t>{0, 1, 2, 1, 0, last},
                                     2, 3,
                                     {.color_type = 3,
                                      .bit_depth = depth,
                                      .interlaced = interlaced,
                                      .palette_entries = 3}))
            .status();
      };
      EXPECT_TRUE(decode(2).ok()) << decode(2);
      const absl::Status status = decode(3);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << depth;
      EXPECT_THAT(std::string(status.message()), HasSubstr("palette"));
    }
  }
}

TEST(DecodePngTest, ScalesSmallDepthsAndCutsSixteenBits) {
  const auto gray = [](std::vector<uint16_t> samples, int depth) {
    const auto width = static_cast<int64_t>(samples.size());
    auto image = DecodeImage(
        EncodePng(samples, 1, width, {.color_type = 0, .bit_depth = depth}));
    EXPECT_TRUE(image.ok()) << image.status();
    std::vector<int> red;
    for (size_t i = 0; image.ok() && i < image->pixels.size(); i += 3) {
      red.push_back(image->pixels[i]);
    }
    return red;
  };
  EXPECT_THAT(gray({0, 1, 1}, 1), ElementsAre(0, 255, 255));
  EXPECT_THAT(gray({0, 1, 2, 3}, 2), ElementsAre(0, 85, 170, 255));
  EXPECT_THAT(gray({0, 5, 15}, 4), ElementsAre(0, 85, 255));
  EXPECT_THAT(gray({0, 0x12FF, 0xFF00}, 16), ElementsAre(0, 0x12, 0xFF));
}

TEST(DecodeImageTest, TurnsThePictureUpright) {
  // Stored 2 wide, 3 high: the red values are 10 * row + column.
  std::vector<uint16_t> samples;
  for (const uint16_t red : {0, 1, 10, 11, 20, 21}) {
    samples.insert(samples.end(), {red, 7, 8});
  }
  const std::vector<std::vector<int>> upright = {
      {0, 1, 10, 11, 20, 21}, {1, 0, 11, 10, 21, 20}, {21, 20, 11, 10, 1, 0},
      {20, 21, 10, 11, 0, 1}, {0, 10, 20, 1, 11, 21}, {20, 10, 0, 21, 11, 1},
      {21, 11, 1, 20, 10, 0}, {1, 11, 21, 0, 10, 20}};
  for (int i = 0; i < 16; ++i) {
    const int orientation = i / 2 + 1;
    SCOPED_TRACE(orientation);
    const auto image = DecodeImage(EncodePng(
        samples, 3, 2,
        {.orientation = orientation, .exif_past_pixels = i % 2 == 1}));
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width, orientation >= 5 ? 3 : 2);
    EXPECT_EQ(image->height, orientation >= 5 ? 2 : 3);
    std::vector<int> red;
    for (size_t i = 0; i < image->pixels.size(); i += 3) {
      red.push_back(image->pixels[i]);
      EXPECT_EQ(image->pixels[i + 1], 7);
      EXPECT_EQ(image->pixels[i + 2], 8);
    }
    EXPECT_EQ(red, upright[static_cast<size_t>(orientation - 1)])
        << orientation;
  }
}

TEST(DecodeImageTest, TurnsALargeJpegThroughAllTiles) {
  const std::vector<uint8_t> pixels = SmoothPicture(70, 101, 3);
  const auto plain = DecodeImage(EncodeJpeg(pixels, 70, 101, 3));
  const auto turned =
      DecodeImage(EncodeJpeg(pixels, 70, 101, 3, {.orientation = 6}));
  ASSERT_TRUE(plain.ok() && turned.ok());
  ASSERT_EQ(turned->width, 70);
  ASSERT_EQ(turned->height, 101);
  for (int64_t y = 0; y < 70; ++y) {
    for (int64_t x = 0; x < 101; ++x) {
      const auto from = static_cast<size_t>((y * 101 + x) * 3);
      const auto to = static_cast<size_t>((x * 70 + 69 - y) * 3);
      ASSERT_EQ(plain->pixels[from], turned->pixels[to]);
    }
  }
}

void ExpectEveryCutRefused(const Bytes& file, size_t step) {
  ASSERT_TRUE(DecodeImage(file).ok());
  for (size_t size = 0; size < file.size(); size += step) {
    const auto image = DecodeImage(std::span(file).first(size));
    ASSERT_FALSE(image.ok()) << size << " of " << file.size();
    EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument);
  }
  // Nobody looks at the checksum of a PNG's empty end chunk.
  constexpr size_t kEndChecksum = 4;
  EXPECT_FALSE(
      DecodeImage(std::span(file).first(file.size() - kEndChecksum - 1)).ok());
}

TEST(DecodeImageTest, RefusesTruncatedData) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  ExpectEveryCutRefused(EncodeJpeg(pixels, kHeight, kWidth, 3), 7);
  ExpectEveryCutRefused(
      EncodeJpeg(pixels, kHeight, kWidth, 3, {.progressive = true}), 7);
  ExpectEveryCutRefused(EncodePng(Widen(pixels), kHeight, kWidth), 97);
}

// The first `size` bytes, closed with an end marker.
Bytes CutAndClosed(const Bytes& jpeg, size_t size) {
  Bytes file(jpeg.begin(), jpeg.begin() + static_cast<std::ptrdiff_t>(size));
  file.insert(file.end(), {std::byte{0xFF}, std::byte{0xD9}});
  return file;
}

TEST(DecodeJpegTest, RefusesDataThatIsCutAndClosed) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  for (const JpegOptions& options :
       {JpegOptions{}, JpegOptions{.subsampled = true},
        JpegOptions{.arithmetic = true}, JpegOptions{.scan_for_each = true},
        JpegOptions{.progressive = true},
        JpegOptions{.progressive = true, .arithmetic = true}}) {
    const Bytes whole = EncodeJpeg(pixels, kHeight, kWidth, 3, options);
    // Where a progressive picture may end.
    std::set<size_t> ends;
    if (options.progressive && !options.arithmetic) {
      for (const size_t marker : MarkersOf(whole)) {
        ends.insert({marker, marker + 1});
      }
    }
    for (size_t size = 2; size + 2 < whole.size(); ++size) {
      if (ends.contains(size)) continue;
      const absl::Status status =
          DecodeImage(CutAndClosed(whole, size)).status();
      ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
          << size << " of " << whole.size() << ": " << status;
    }
  }
}

// As its format means it to be: coarser, and nothing is missing.
TEST(DecodeJpegTest, TakesAProgressivePictureWithoutItsLastScans) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  const Bytes whole =
      EncodeJpeg(pixels, kHeight, kWidth, 3, {.progressive = true});
  bool first_scan = true;
  for (const size_t marker : MarkersOf(whole)) {
    if (whole[marker + 1] != std::byte{0xDA}) continue;
    const absl::StatusOr<DecodedImage> image =
        DecodeImage(CutAndClosed(whole, marker));
    EXPECT_EQ(image.ok(), !first_scan) << image.status();
    if (image.ok()) {
      EXPECT_LE(MaxDifference(image->pixels, pixels), 64);
    }
    first_scan = false;
  }
}

TEST(DecodeJpegTest, RefusesAPictureWithoutAllOfItsColors) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  const Bytes whole =
      EncodeJpeg(pixels, kHeight, kWidth, 3, {.scan_for_each = true});
  int scans = 0;
  for (const size_t marker : MarkersOf(whole)) {
    if (whole[marker + 1] != std::byte{0xDA} || ++scans == 1) continue;
    const absl::Status status =
        DecodeImage(CutAndClosed(whole, marker)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no scan of"));
  }
  EXPECT_EQ(scans, 3);
}

TEST(DecodeImageTest, NamesTheCause) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  Bytes jpeg = EncodeJpeg(pixels, kHeight, kWidth, 3);
  EXPECT_THAT(
      std::string(DecodeImage(std::span(jpeg).first(jpeg.size() * 3 / 4))
                      .status()
                      .message()),
      HasSubstr("cannot decode JPEG: Premature end of JPEG file"));
  Bytes png = EncodePng(Widen(pixels), kHeight, kWidth);
  EXPECT_THAT(
      std::string(
          DecodeImage(std::span(png).first(png.size() / 2)).status().message()),
      HasSubstr("data ends early"));
  png[png.size() / 2] ^= std::byte{1};
  const auto damaged = DecodeImage(png);
  EXPECT_EQ(damaged.status().code(), absl::StatusCode::kInvalidArgument);
}

// The caller's bytes may be anything: a status or a picture, never a crash.
TEST(DecodeImageTest, SurvivesDamagedBytes) {
  const std::vector<uint8_t> pixels = SmoothPicture(24, 40, 3);
  const std::vector<Bytes> files = {
      EncodeJpeg(pixels, 24, 40, 3, {.orientation = 6}),
      EncodeJpeg(pixels, 24, 40, 3, {.progressive = true}),
      EncodePng(Widen(pixels), 24, 40)};
  std::mt19937 random(1);
  for (int round = 0; round < 600; ++round) {
    Bytes file = files[static_cast<size_t>(round) % files.size()];
    for (int i = 0; i <= round % 5; ++i) {
      file[random() % file.size()] = static_cast<std::byte>(random() & 0xFF);
    }
    const auto image =
        DecodeImage(file, {.max_side = 512, .max_pixels = 1 << 16});
    if (!image.ok()) {
      EXPECT_EQ(image.status().code(), absl::StatusCode::kInvalidArgument)
          << image.status();
    }
  }
}

// A scan takes long for a few bytes of file: each is asked within.
TEST(DecodeImageIntoTest, EndsWithinAJpegThatIsGivenUp) {
  constexpr int64_t kSide = 1024;
  const std::vector<uint8_t> pixels = SmoothPicture(kSide, kSide, 3);
  std::vector<uint8_t> decoded(pixels.size());
  for (const bool progressive : {false, true}) {
    SCOPED_TRACE(progressive);
    const Bytes file =
        EncodeJpeg(pixels, kSide, kSide, 3, {.progressive = progressive});
    const auto info = PeekImage(file);
    ASSERT_TRUE(info.ok()) << info.status();
    int questions = 0, most = 1 << 30;
    const auto decode = [&] {
      questions = 0;
      return DecodeImageInto(file, *info, decoded,
                             [&] { return ++questions >= most; });
    };
    ASSERT_TRUE(decode().ok());
    // libjpeg writes a progressive picture in ten scans.
    EXPECT_GE(questions, progressive ? 160 : 16);
    EXPECT_LE(MaxDifference(decoded, pixels), 8);
    most = 3;
    EXPECT_EQ(decode().code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(questions, 3);
  }
}

// A long run of one color takes few bytes of file.
TEST(DecodeImageIntoTest, EndsWithinAPngThatIsGivenUp) {
  constexpr int64_t kSide = 1024;
  const std::vector<uint8_t> pixels = SmoothPicture(kSide, kSide, 3);
  std::vector<uint8_t> decoded(pixels.size());
  const Bytes file = EncodePng(Widen(pixels), kSide, kSide);
  const auto info = PeekImage(file);
  ASSERT_TRUE(info.ok()) << info.status();
  int questions = 0, most = 1 << 30;
  const auto decode = [&] {
    questions = 0;
    return DecodeImageInto(file, *info, decoded,
                           [&] { return ++questions >= most; });
  };
  ASSERT_TRUE(decode().ok());
  EXPECT_GE(questions, static_cast<int>(file.size() >> 14));
  EXPECT_EQ(decoded, pixels);
  most = 3;
  EXPECT_EQ(decode().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(questions, 3);
}

// A color profile of 15 KB may unpack to 16 MiB, of which pixels take nothing.
TEST(DecodeImageTest, LeavesUnreadWhatNoPixelNeeds) {
  const std::vector<uint8_t> pixels = SmoothPicture(4, 6, 3);
  Bytes file = EncodePng(Widen(pixels), 4, 6);
  constexpr size_t kAfterHeader = 8 + 12 + 13;
  Bytes profile(12 + 100, std::byte{0x5a});  // that is none, nor compressed
  constexpr std::string_view kFrame("\0\0\0\x64iCCP", 8);
  std::memcpy(profile.data(), kFrame.data(), kFrame.size());
  file.insert(file.begin() + kAfterHeader, profile.begin(), profile.end());
  const auto image = DecodeImage(file);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->pixels, pixels);
}

// Where the chunks of a PNG begin, but the signature.
std::vector<size_t> ChunksOf(const Bytes& png) {
  std::vector<size_t> begins;
  for (size_t at = 8; at < png.size();) {
    begins.push_back(at);
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) {
      length = length << 8 | std::to_integer<size_t>(png[at + i]);
    }
    at += length + 12;
  }
  return begins;
}

// An empty ancillary chunk.
Bytes EmptyChunk(std::string_view type) {
  Bytes chunk(12);
  std::memcpy(chunk.data() + 4, type.data(), 4);
  return chunk;
}

TEST(DecodePngTest, RefusesMalformedChunksAnywhere) {
  const std::vector<uint8_t> pixels = SmoothPicture(kHeight, kWidth, 3);
  const Bytes png =
      EncodePng(Widen(pixels), kHeight, kWidth, {.chunk_bytes = 2000});
  const std::vector<size_t> begins = ChunksOf(png);
  ASSERT_GE(begins.size(), 4u);  // header, pixels twice, end
  const auto decode = [&](size_t at, const Bytes& chunk) {
    Bytes file = png;
    file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), chunk.begin(),
                chunk.end());
    return DecodeImage(file).status();
  };
  const auto refused = [&](const absl::Status& status, std::string_view why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(why)));
  };
  const size_t first = begins[1], end = begins.back();
  for (const size_t at : {first, end}) {
    SCOPED_TRACE(at);
    EXPECT_TRUE(decode(at, EmptyChunk("teXt")).ok());
    for (const std::string_view type : {"te*t", "t3Xt", "te[t", "te\xe9t"}) {
      refused(decode(at, EmptyChunk(type)), "type is not four letters");
    }
    Bytes endless = EmptyChunk("teXt");
    endless[0] = std::byte{0x80};
    refused(decode(at, endless), "a chunk of 2147483648 bytes");
  }
  // Between the chunks of pixels nothing may stand.
  for (size_t i = 2; i + 1 < begins.size(); ++i) {
    refused(decode(begins[i], EmptyChunk("teXt")), "apart");
  }
  EXPECT_TRUE(DecodeImage(png).ok());
}

TEST(DecodeImageIntoTest, RefusesMemoryOfTheWrongSize) {
  const Bytes file = EncodeJpeg(SmoothPicture(4, 6, 3), 4, 6, 3);
  const auto info = PeekImage(file);
  ASSERT_TRUE(info.ok());
  std::vector<uint8_t> small(4 * 6 * 3 - 1);
  EXPECT_EQ(DecodeImageInto(file, *info, small).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(DecodeImageTest, DecodesAPhotograph) {
  const char* tests = std::getenv("WEIR_TEST_DATA");
  ASSERT_NE(tests, nullptr) << "run by ctest, or set WEIR_TEST_DATA to tests/";
  std::ifstream in(std::string(tests) + "/data/photo.jpg", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto image = DecodeImage(std::as_bytes(std::span(text)));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->width, 640);
  EXPECT_EQ(image->height, 427);
}

}  // namespace
}  // namespace weir::image
