// weir.DecodeImage: PNG is exact, JPEG (quality 95, smooth) within 8 levels of
// the picture that was encoded. The decoders themselves: tests/ops/image.
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/ops/image/jpeg_decoder.h"
#include "kernels/ops/registry.h"
#include "tests/ops/image/test_images.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(DecodeImageTest);

constexpr int64_t kHeight = 24, kWidth = 40;

image::Bytes Png(int64_t height = kHeight, int64_t width = kWidth) {
  const std::vector<uint8_t> pixels = image::SmoothPicture(height, width, 3);
  const std::vector<uint16_t> samples(pixels.begin(), pixels.end());
  return image::EncodePng(samples, height, width);
}

image::Bytes Jpeg(int orientation = 0) {
  return image::EncodeJpeg(image::SmoothPicture(kHeight, kWidth, 3), kHeight,
                           kWidth, 3, {.orientation = orientation});
}

// Four bytes of file are a segment.
image::Bytes JpegOfSegments(int count) {
  image::Bytes file = Jpeg(), segments;
  for (int i = 0; i < count; ++i) {
    for (const int byte : {0xFF, 0xE3, 0x00, 0x02}) {
      segments.push_back(static_cast<std::byte>(byte));
    }
  }
  file.insert(file.begin() + 2, segments.begin(), segments.end());
  return file;
}

Value FileBytes(const image::Bytes& file) {
  return {DType::kUint8, {static_cast<int64_t>(file.size())}, file};
}

// Refers to `files`.
Value Strings(const std::vector<image::Bytes>& files, Dims dims) {
  std::vector<StringRef> refs;
  for (const image::Bytes& file : files) {
    refs.push_back({reinterpret_cast<const char*>(file.data()), file.size()});
  }
  return Of<StringRef>(std::move(dims), refs);
}

Value Smooth(Dims dims) {
  return Of<uint8_t>(std::move(dims), image::SmoothPicture(kHeight, kWidth, 3));
}

TEST_P(DecodeImageTest, BytesOfOneFile) {
  ExpectEqual(RunOne(WeirNode("DecodeImage"), {FileBytes(Png())}),
              Smooth({kHeight, kWidth, 3}));
  const Value jpeg = RunOne(WeirNode("DecodeImage"), {FileBytes(Jpeg())});
  EXPECT_EQ(jpeg.dims, Dims({kHeight, kWidth, 3}));
  ExpectClose(jpeg, ToDoubles(Smooth({})), {.absolute = 8});
}

// Nothing of what lay in memory before is seen in its pixels.
TEST_P(DecodeImageTest, AnInterlacedPngOfFewColors) {
  constexpr int64_t kRows = 17, kColumns = 13;
  for (const int depth : {1, 2, 4, 8}) {
    for (const int orientation : {0, 6}) {
      std::vector<uint16_t> indices;
      std::vector<uint8_t> colors;
      for (int i = 0; i < kRows * kColumns; ++i) {
        const int index = i / 3 % (1 << depth) / 2;
        indices.push_back(static_cast<uint16_t>(index));
      }
      const Value picture =
          RunOne(WeirNode("DecodeImage"),
                 {FileBytes(image::EncodePng(indices, kRows, kColumns,
                                             {.color_type = 3,
                                              .bit_depth = depth,
                                              .interlaced = true,
                                              .orientation = orientation}))});
      for (int64_t y = 0; y < picture.dims[0]; ++y) {
        for (int64_t x = 0; x < picture.dims[1]; ++x) {
          const int64_t at = orientation == 0 ? y * kColumns + x
                                              : (kRows - 1 - x) * kColumns + y;
          const auto index =
              static_cast<uint8_t>(indices[static_cast<size_t>(at)]);
          colors.insert(colors.end(), {index, static_cast<uint8_t>(255 - index),
                                       static_cast<uint8_t>(index / 2)});
        }
      }
      ExpectEqual(picture, Of<uint8_t>(picture.dims, colors));
    }
  }
}

// Whatever the device's own decoder would take its colors for.
TEST_P(DecodeImageTest, AJpegThatIsStoredAsRgb) {
  for (const bool adobe_marker : {true, false}) {
    const image::Bytes file = image::EncodeJpeg(
        image::SmoothPicture(kHeight, kWidth, 3), kHeight, kWidth, 3,
        {.rgb = true, .adobe_marker = adobe_marker});
    ExpectClose(RunOne(WeirNode("DecodeImage"), {FileBytes(file)}),
                ToDoubles(Smooth({})), {.absolute = 8});
  }
}

// Rare, and not known to the device's own decoder: two colors as fine as the
// brightness, three times as coarse, and finer than it.
TEST_P(DecodeImageTest, AJpegOfAnySampling) {
  for (const std::array<int, 3>& across :
       {std::array{2, 2, 1}, {3, 1, 1}, {1, 2, 1}}) {
    const image::Bytes file =
        image::EncodeJpeg(image::SmoothPicture(kHeight, kWidth, 3), kHeight,
                          kWidth, 3, {.across = across});
    SCOPED_TRACE(testing::PrintToString(across));
    ExpectClose(RunOne(WeirNode("DecodeImage"), {FileBytes(file)}),
                ToDoubles(Smooth({})), {.absolute = 8});
  }
}

// The pixels of one do not fit where there is room for those of the other. Of
// the last, the first header stands where decoders differ about what a marker
// is, and swallows the second, or is passed over.
TEST_P(DecodeImageTest, RefusesAJpegOfTwoSizes) {
  constexpr int64_t kLarge = 16, kSmall = kLarge / 2;
  const image::Bytes large = image::EncodeJpeg(
      image::SmoothPicture(kLarge, kLarge, 3), kLarge, kLarge, 3);
  const auto at = [&large](int code) {
    for (const size_t marker : image::MarkersOf(large)) {
      if (large[marker + 1] == static_cast<std::byte>(code)) return marker;
    }
    ADD_FAILURE() << "no marker " << code;
    return size_t{0};
  };
  constexpr size_t kHeader = 19, kHeaderEnd = 8;  // with its marker; the size's
  const size_t header_at = at(0xC0);
  const auto header = [&](size_t length) {
    image::Bytes bytes(large.begin() + static_cast<long>(header_at),
                       large.begin() + static_cast<long>(header_at + kHeader));
    bytes[3] = static_cast<std::byte>(length);
    bytes[6] = bytes[kHeaderEnd] = static_cast<std::byte>(kSmall);
    return bytes;
  };
  const auto with = [&large](size_t place, image::Bytes more) {
    image::Bytes file = large;
    file.insert(file.begin() + static_cast<long>(place), more.begin(),
                more.end());
    return file;
  };
  image::Bytes hidden = header(kHeader - 2 + kHeader);
  for (const int byte : {kHeader + 2, size_t{0}, size_t{0x01}, size_t{0xFF}}) {
    hidden.insert(hidden.begin(), static_cast<std::byte>(byte));
  }
  const size_t end = large.size() - 2;
  const std::vector<image::Bytes> files = {with(header_at, header(kHeader - 2)),
                                           with(end, header(kHeader - 2)),
                                           with(header_at, hidden)};
  for (const image::Bytes& file : files) {
    const absl::Status status =
        Run(WeirNode("DecodeImage"), {FileBytes(file)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(Reason(status), "CORRUPT_DATA") << status;
    // It believes in the large one, and is not asked for its pixels.
    if (on_cuda() && file == files.back()) {
      EXPECT_NE(status.message().find("two headers that disagree"),
                absl::string_view::npos)
          << status;
    }
  }
}

// Phones append videos to their pictures.
TEST_P(DecodeImageTest, WhatFollowsTheEndIsNotRead) {
  image::Bytes file = Jpeg();
  for (const int byte : {0xFF, 0xDA, 0x00, 0x08, 0xFF, 0xC0, 0x12}) {
    file.push_back(static_cast<std::byte>(byte));
  }
  ExpectClose(RunOne(WeirNode("DecodeImage"), {FileBytes(file)}),
              ToDoubles(Smooth({})), {.absolute = 8});
}

TEST_P(DecodeImageTest, OneString) {
  const std::vector<image::Bytes> files = {Png()};
  ExpectEqual(RunOne(WeirNode("DecodeImage"), {Strings(files, {})}),
              Smooth({kHeight, kWidth, 3}));
  ExpectEqual(RunOne(WeirNode("DecodeImage"), {Strings(files, {1})}),
              Smooth({1, kHeight, kWidth, 3}));
}

TEST_P(DecodeImageTest, SeveralStrings) {
  const Value out =
      RunOne(WeirNode("DecodeImage"), {Strings({Png(), Jpeg(), Png()}, {3})});
  EXPECT_EQ(out.dims, Dims({3, kHeight, kWidth, 3}));
  std::vector<double> exact;
  for (int i = 0; i < 3; ++i) {
    const std::vector<double> one = ToDoubles(Smooth({}));
    exact.insert(exact.end(), one.begin(), one.end());
  }
  ExpectClose(out, exact, {.absolute = 8});
}

TEST_P(DecodeImageTest, StandsUpright) {
  const Value turned = RunOne(WeirNode("DecodeImage"), {FileBytes(Jpeg(6))});
  EXPECT_EQ(turned.dims, Dims({kWidth, kHeight, 3}));
}

TEST_P(DecodeImageTest, RefusesPicturesOfDifferentSizes) {
  const std::vector<image::Bytes> files = {Png(), Png(kHeight, kWidth + 1)};
  const absl::Status status =
      Run(WeirNode("DecodeImage"), {Strings(files, {2})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("picture 1"), absl::string_view::npos)
      << status;
}

TEST_P(DecodeImageTest, RefusesWhatIsNoPictureWhenPlanning) {
  const image::Bytes garbage(100, std::byte{0x55});
  for (const image::Bytes& file :
       {garbage, image::Bytes(), image::PngClaiming(60000, 60000),
        image::JpegClaiming(60000, 60000)}) {
    EXPECT_EQ(Run(WeirNode("DecodeImage"), {FileBytes(file)}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  // No data is not damaged data.
  const absl::Status none =
      Run(WeirNode("DecodeImage"), {Strings({}, {0})}).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Reason(none), "") << none;
}

TEST_P(DecodeImageTest, CorruptDataFailsTheWork) {
  for (image::Bytes file : {Png(), Jpeg()}) {
    file.resize(file.size() * 2 / 3);
    const absl::Status status =
        Run(WeirNode("DecodeImage"), {FileBytes(file)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(Reason(status), "CORRUPT_DATA") << status;
  }
}

// Each costs time over the whole picture for a few bytes of file.
TEST_P(DecodeImageTest, RefusesFilesOfManyScans) {
  const image::Bytes file =
      image::EncodeJpeg(image::SmoothPicture(kHeight, kWidth, 3), kHeight,
                        kWidth, 3, {.progressive = true});
  const auto is_marker = [&](size_t i, int code) {
    return file[i] == std::byte{0xFF} &&
           file[i + 1] == static_cast<std::byte>(code);
  };
  size_t begin = 0;
  while (!is_marker(begin, 0xDA)) ++begin;
  size_t end = begin + 2;
  while (file[end] != std::byte{0xFF} || is_marker(end, 0x00)) ++end;
  image::Bytes many(file.begin(), file.begin() + static_cast<long>(begin));
  for (int i = 0; i < 101; ++i) {
    many.insert(many.end(), file.begin() + static_cast<long>(begin),
                file.begin() + static_cast<long>(end));
  }
  many.insert(many.end(), file.begin() + static_cast<long>(end), file.end());
  const absl::Status status =
      Run(WeirNode("DecodeImage"), {FileBytes(many)}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(Reason(status), "CORRUPT_DATA") << status;

  EXPECT_TRUE(image::CheckJpegScans(file).ok());
  const absl::Status checked = image::CheckJpegScans(many);
  EXPECT_NE(checked.message().find("more than 100 scans"),
            absl::string_view::npos)
      << checked;
}

// Not gray, nor what lay in memory.
TEST_P(DecodeImageTest, RefusesAComponentWithoutAScan) {
  const image::Bytes whole =
      image::EncodeJpeg(image::SmoothPicture(kHeight, kWidth, 3), kHeight,
                        kWidth, 3, {.scan_for_each = true});
  EXPECT_TRUE(image::CheckJpegScans(whole).ok());
  std::vector<size_t> scans;
  for (const size_t marker : image::MarkersOf(whole)) {
    if (whole[marker + 1] == std::byte{0xDA}) scans.push_back(marker);
  }
  ASSERT_EQ(scans.size(), 3u);
  // Without the second, the third, and both.
  for (const auto& [begin, end] : {std::pair{scans[1], scans[2]},
                                   {scans[2], whole.size() - 2},
                                   {scans[1], whole.size() - 2}}) {
    image::Bytes file = whole;
    file.erase(file.begin() + static_cast<long>(begin),
               file.begin() + static_cast<long>(end));
    const absl::Status status =
        Run(WeirNode("DecodeImage"), {FileBytes(file)}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(Reason(status), "CORRUPT_DATA") << status;
    EXPECT_FALSE(image::CheckJpegScans(file).ok());
  }
}

// Each of its parts is one to read.
TEST_P(DecodeImageTest, BoundsTheHeadersOfAllPictures) {
  const image::Bytes many = JpegOfSegments(4000);
  const auto decode = [&](const image::Bytes& file, size_t count) {
    const std::vector<image::Bytes> files(count, file);
    return Run(WeirNode("DecodeImage"),
               {Strings(files, {static_cast<int64_t>(count)})})
        .status();
  };
  EXPECT_TRUE(decode(many, 3).ok());
  EXPECT_TRUE(decode(Jpeg(), 300).ok());
  const absl::Status status = decode(many, 300);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "EVALUATION_TOO_LARGE") << status;
  EXPECT_NE(status.message().find("300 pictures"), absl::string_view::npos)
      << status;
}

// --max-scratch-bytes goes by it.
TEST(DecodeImageCostTest, CountsTheMemoryOfTheDecoder) {
  const auto registry = MakeOpRegistry();
  const OpDef* def = registry->Find("weir", "DecodeImage");
  ASSERT_NE(def, nullptr);
  const std::unique_ptr<Device> device = MakeCpuDevice({});
  const auto scratch = [&](const image::Bytes& file) {
    const TensorMeta in = {.dtype = DType::kUint8,
                           .dims = {static_cast<int64_t>(file.size())},
                           .elements = static_cast<int64_t>(file.size()),
                           .bytes = file.size()};
    DigestBudget budget;
    const auto digest = def->digest({in.dtype, in.dims, file.data()}, budget);
    EXPECT_TRUE(digest.ok()) << digest.status();
    TensorMeta out = {.dtype = DType::kUint8,
                      .dims = {(*digest)[0], (*digest)[1], 3}};
    out.elements = (*digest)[0] * (*digest)[1] * 3;
    out.bytes = static_cast<size_t>(out.elements);
    const std::vector<int64_t> ints = *digest;
    NodeInfo node = WeirNode("DecodeImage");
    node.input_types = {DType::kUint8};
    const PlanArgs args = {
        .inputs = {&in, 1}, .outputs = {&out, 1}, .host_ints = {&ints, 1}};
    const int64_t bytes = def->cost(node, Pace::kInTurn, args).scratch_bytes;
    // So much of the arena is the run's, and no other's.
    const auto kernel = registry->CreateKernel(node, *device);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    const auto plan = (*kernel)->Plan(args);
    EXPECT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(static_cast<int64_t>((*plan)->scratch_bytes()), bytes);
    return bytes;
  };
  constexpr int64_t kSide = 1024, kPixels = kSide * kSide;
  const std::vector<uint8_t> pixels = image::SmoothPicture(kSide, kSide, 3);
  const auto jpeg = [&](const image::JpegOptions& options) {
    return scratch(image::EncodeJpeg(pixels, kSide, kSide, 3, options));
  };
  const int64_t least = jpeg({});
  EXPECT_GT(least, 0);
  EXPECT_LT(least, 6 * kPixels);
  // All coefficients; a second picture that is then turned.
  EXPECT_EQ(jpeg({.progressive = true}), least + 6 * kPixels);
  EXPECT_EQ(jpeg({.orientation = 6}), least + 3 * kPixels);
  EXPECT_EQ(jpeg({.progressive = true, .orientation = 6}), least + 9 * kPixels);
  EXPECT_GT(scratch(Png()), 0);
}

// Text has one element for a file, whatever its bytes. Those of a file that has
// no more than its picture explains count as pixels, and make no other plan.
TEST(DecodeImageCostTest, CountsTheBytesOfStrings) {
  const auto registry = MakeOpRegistry();
  const OpDef* const def = registry->Find("weir", "DecodeImage");
  ASSERT_NE(def, nullptr);
  // The digest of as many files, with so many bytes after each one's end.
  const auto digest = [&](size_t files, size_t more) {
    image::Bytes file = Png();
    file.resize(file.size() + more);
    const std::vector<image::Bytes> all(files, file);
    const Value value = Strings(all, {static_cast<int64_t>(files)});
    DigestBudget budget;
    const auto ints =
        def->digest({value.dtype, value.dims, value.bytes.data()}, budget);
    EXPECT_TRUE(ints.ok()) << ints.status();
    return ints.value_or(std::vector<int64_t>());
  };
  const auto operations = [&](Pace pace, size_t files, size_t more) {
    const auto count = static_cast<int64_t>(files);
    NodeInfo node = WeirNode("DecodeImage");
    node.input_types = {DType::kString};
    const TensorMeta input = {
        .dtype = DType::kString, .dims = {count}, .elements = count};
    const TensorMeta output = {.dtype = DType::kUint8,
                               .dims = {count, kHeight, kWidth, 3},
                               .elements = count * kHeight * kWidth * 3};
    const std::vector<std::vector<int64_t>> ints = {digest(files, more)};
    return def->cost(node, pace, {{&input, 1}, {&output, 1}, ints}).operations;
  };
  constexpr size_t kMega = 1 << 20;
  for (const Pace pace : {Pace::kInTurn, Pace::kSideBySide}) {
    EXPECT_GE(operations(pace, 1, kMega), int64_t{kMega});
    EXPECT_GE(operations(pace, 5, kMega), int64_t{5 * kMega});
    EXPECT_LT(operations(pace, 1, 1000), 10'000);
  }
  EXPECT_EQ(digest(1, 0), digest(1, 1000));
  EXPECT_EQ(digest(1, 5 * kMega), digest(1, 6 * kMega));
  EXPECT_NE(digest(1, 0), digest(1, kMega));
}

// Every node that decodes reads them again, whether its files are text or not.
TEST(DecodeImageCostTest, CountsThePartsOfHeaders) {
  const auto registry = MakeOpRegistry();
  const OpDef* const def = registry->Find("weir", "DecodeImage");
  ASSERT_NE(def, nullptr);
  const auto surplus = [&](const Value& value) {
    DigestBudget budget;
    const auto ints =
        def->digest({value.dtype, value.dims, value.bytes.data()}, budget);
    EXPECT_TRUE(ints.ok()) << ints.status();
    return ints.ok() ? ints->back() : -1;
  };
  for (const int parts : {1000, 4000}) {
    const image::Bytes file = JpegOfSegments(parts);
    EXPECT_GE(surplus(FileBytes(file)), 10 * parts);
    EXPECT_GE(surplus(Strings({file, Jpeg(), file}, {3})), 20 * parts);
  }
  EXPECT_EQ(surplus(FileBytes(JpegOfSegments(1000))),
            surplus(FileBytes(JpegOfSegments(1001))));
  // A camera's, and the chunks of a large picture.
  EXPECT_EQ(surplus(FileBytes(JpegOfSegments(30))), 0);
  const std::vector<uint8_t> pixels = image::SmoothPicture(1024, 1024, 3);
  const image::Bytes png =
      image::EncodePng(std::vector<uint16_t>(pixels.begin(), pixels.end()),
                       1024, 1024, {.chunk_bytes = 1024});
  EXPECT_EQ(surplus(FileBytes(png)), 0);
}

TEST(DecodeImageInferTest, KnowsTheRankBeforeTheFile) {
  const auto shape = [](std::vector<Dim> dims) -> SymbolicShape {
    return SymbolicDims(dims.begin(), dims.end());
  };
  NodeInfo node = WeirNode("DecodeImage");
  node.input_types = {DType::kUint8};
  EXPECT_EQ(InferShapes(node, {shape({Dim()})})->at(0), "uint8[?,?,3]");
  EXPECT_EQ(InferShapes(node, {shape({9})}, {std::vector<int64_t>{4, 5, 0, 0}})
                ->at(0),
            "uint8[4,5,3]");
  EXPECT_FALSE(InferShapes(node, {shape({2, 9})}).ok());
  node.input_types = {DType::kString};
  EXPECT_EQ(InferShapes(node, {shape({Dim::Symbol(0)})})->at(0),
            "uint8[s0,?,?,3]");
  EXPECT_FALSE(InferShapes(node, {shape({1, 1})}).ok());
}

}  // namespace
}  // namespace weir
