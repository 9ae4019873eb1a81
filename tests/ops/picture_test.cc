// weir.Resize, Crop, Flip and Normalize. Bounds: Crop and Flip are exact;
// Resize of float 8 * 2^-24 of the largest pixel per tap row and column, of
// uint8 one level beside the rounded value; Normalize 4 * 2^-24 of the terms.
#include <algorithm>
#include <cmath>

#include "kernels/ops/image/resize_geometry.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_VECTOR_OP_TEST(PictureTest);

SymbolicShape Shape(std::vector<Dim> dims) {
  return SymbolicDims(dims.begin(), dims.end());
}

// The same filter at the same places, in double: sums over both axes at once.
std::vector<double> Resized(const std::vector<double>& in, int64_t height,
                            int64_t width, int64_t channels,
                            const image::ResizeSize& size,
                            const image::ResizeFilter& filter) {
  const auto geometry = image::MakeResizeGeometry(height, width, size).value();
  const auto y =
      image::MakeAxisWeights(geometry.y, filter, {0, geometry.y.out_size});
  const auto x =
      image::MakeAxisWeights(geometry.x, filter, {0, geometry.x.out_size});
  std::vector<double> out;
  for (int64_t i = 0; i < y.size(); ++i) {
    for (int64_t j = 0; j < x.size(); ++j) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t a = 0; a < y.taps; ++a) {
          for (int64_t b = 0; b < x.taps; ++b) {
            const int64_t row = y.first[static_cast<size_t>(i)] + a;
            const int64_t column = x.first[static_cast<size_t>(j)] + b;
            sum +=
                static_cast<double>(
                    y.weights[static_cast<size_t>(i * y.taps + a)]) *
                static_cast<double>(
                    x.weights[static_cast<size_t>(j * x.taps + b)]) *
                in[static_cast<size_t>((row * width + column) * channels + c)];
          }
        }
        out.push_back(sum);
      }
    }
  }
  return out;
}

TEST_P(PictureTest, ResizesAsTheGeometrySays) {
  const int64_t h = 31, w = 43;
  struct Case {
    Attributes attributes;
    image::ResizeSize size;
    image::ResizeFilter filter;
  };
  const image::ResizeFilter linear,
      aliased = {.antialias = false},
      nearest = {image::Interpolation::kNearest, true};
  const Case cases[] = {
      {Attrs({{"resize_x", 20.0f}, {"resize_y", 17.0f}}),
       {.x = 20, .y = 17},
       linear},
      {Attrs({{"resize_shorter", 16.0f}}), {.shorter = 16}, linear},
      {Attrs({{"resize_longer", 64.0f}}), {.longer = 64}, linear},
      {Attrs({{"resize_x", 20.0f}, {"antialias", int64_t{0}}}),
       {.x = 20},
       aliased},
      {Attrs({{"resize_y", -40.0f}, {"interp_type", std::string("nearest")}}),
       {.y = -40},
       nearest},
  };
  for (const Case& c : cases) {
    for (const int64_t channels : {1, 3, 4}) {
      SCOPED_TRACE(channels);
      const int64_t n = h * w * channels;
      const Value floats =
          Rounded(DType::kFloat, {h, w, channels}, Spread(n, -1, 1, 1));
      ExpectClose(RunOne(WeirNode("Resize", c.attributes), {floats}),
                  Resized(ToDoubles(floats), h, w, channels, c.size, c.filter),
                  {.absolute = 16 * 0x1p-24});
      const Value bytes =
          Rounded(DType::kUint8, {h, w, channels}, Spread(n, 0, 255, 2));
      std::vector<double> exact =
          Resized(ToDoubles(bytes), h, w, channels, c.size, c.filter);
      // A sum next to one half may fall to either side.
      ExpectClose(RunOne(WeirNode("Resize", c.attributes), {bytes}), exact,
                  {.absolute = 0.5 + 1e-4});
    }
  }
}

TEST_P(PictureTest, ResizesEachPictureOfABatch) {
  const Value one = Rounded(DType::kUint8, {9, 7, 3}, Spread(189, 0, 255, 3));
  const Value two = Rounded(DType::kUint8, {9, 7, 3}, Spread(189, 0, 255, 4));
  Value batch = {DType::kUint8, {2, 9, 7, 3}, one.bytes};
  batch.bytes.insert(batch.bytes.end(), two.bytes.begin(), two.bytes.end());
  const NodeInfo node = WeirNode("Resize", Attrs({{"resize_shorter", 5.0f}}));
  const Value a = RunOne(node, {one}), b = RunOne(node, {two});
  Value expected = {DType::kUint8, {2}, a.bytes};
  for (const int64_t size : a.dims) expected.dims.push_back(size);
  expected.bytes.insert(expected.bytes.end(), b.bytes.begin(), b.bytes.end());
  ExpectEqual(RunOne(node, {batch}), expected);
}

TEST_P(PictureTest, ResizeKeepsNotANumberWhereItHasWeight) {
  const float nan = NAN, infinity = INFINITY;
  const std::vector<float> same = {1, 2, 3, 4, nan, 6, 7, 8, -infinity};
  const std::vector<float> copied =
      RunOne(WeirNode("Resize"), {Of<float>({3, 3, 1}, same)}).As<float>();
  ASSERT_EQ(copied.size(), same.size());
  EXPECT_TRUE(std::isnan(copied[4]));
  for (size_t i = 0; i < same.size(); ++i) {
    if (i == 4) continue;
    EXPECT_EQ(copied[i], same[i]) << i;
  }
  // The middle lies as far from the centers of the outer eight as they reach.
  std::vector<float> pixels(81, 5);
  pixels[40] = infinity;
  const Value shrunk = RunOne(
      WeirNode("Resize", Attrs({{"resize_x", 3.0f}, {"resize_y", 3.0f}})),
      {Of<float>({9, 9, 1}, pixels)});
  std::vector<double> expected(9, 5);
  expected[4] = static_cast<double>(infinity);
  ExpectClose(shrunk, expected, {.absolute = 5 * 16 * 0x1p-24});
}

// So large that the CPU makes bands of it: the same pixels.
TEST_P(PictureTest, ResizesLargePictures) {
  const int64_t h = 1050, w = 1400;
  const Value in =
      Rounded(DType::kUint8, {h, w, 3}, Spread(h * w * 3, 0, 255, 5));
  ExpectClose(
      RunOne(
          WeirNode("Resize", Attrs({{"resize_x", 50.0f}, {"resize_y", 40.0f}})),
          {in}),
      Resized(ToDoubles(in), h, w, 3, {.x = 50, .y = 40}, {}),
      {.absolute = 0.5 + 1e-3});
}

TEST_P(PictureTest, CropsEveryType) {
  for (const DType dtype :
       {DType::kUint8, DType::kFloat, DType::kFloat16, DType::kInt64}) {
    const Value in = Rounded(dtype, {2, 5, 6, 3}, Spread(180, 0, 99, 6));
    const std::vector<double> v = ToDoubles(in);
    std::vector<double> expected;
    // (5 - 2) * 0.5 = 1.5 begins at 2; (6 - 3) * 1 = 3.
    for (size_t n = 0; n < 2; ++n) {
      for (size_t y = 2; y < 4; ++y) {
        for (size_t x = 3; x < 6; ++x) {
          for (size_t c = 0; c < 3; ++c) {
            expected.push_back(v[((n * 5 + y) * 6 + x) * 3 + c]);
          }
        }
      }
    }
    ExpectEqual(RunOne(WeirNode("Crop", Attrs({{"crop_h", 2.0f},
                                               {"crop_w", 3.0f},
                                               {"crop_pos_x", 1.0f}})),
                       {in}),
                Rounded(dtype, {2, 2, 3, 3}, expected));
  }
}

TEST_P(PictureTest, FlipsByAttributes) {
  const Value in = Of<uint8_t>({2, 3, 1}, {1, 2, 3, 4, 5, 6});
  const auto flip = [&](int64_t horizontal, int64_t vertical) {
    return RunOne(WeirNode("Flip", Attrs({{"horizontal", horizontal},
                                          {"vertical", vertical}})),
                  {in})
        .As<uint8_t>();
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(flip(0, 0), Bytes({1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(flip(1, 0), Bytes({3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(flip(0, 1), Bytes({4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(flip(1, 1), Bytes({6, 5, 4, 3, 2, 1}));
  EXPECT_EQ(RunOne(WeirNode("Flip"), {in}).As<uint8_t>(),
            Bytes({3, 2, 1, 6, 5, 4}));
}

TEST_P(PictureTest, FlipsByTensors) {
  const Value in = Of<float>({2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const std::vector<float> same = {1, 2, 3, 4, 5, 6, 7, 8};
  const Value yes = Rounded(DType::kBool, {}, {1});
  const Value no = Of<int32_t>({1}, {0});
  const Value second = Rounded(DType::kBool, {2}, {0, 1});
  EXPECT_EQ(RunOne(WeirNode("Flip"), {in, yes}).As<float>(),
            std::vector<float>({3, 4, 1, 2, 7, 8, 5, 6}));
  EXPECT_EQ(RunOne(WeirNode("Flip"), {in, no}).As<float>(), same);
  EXPECT_EQ(RunOne(WeirNode("Flip"), {in, second}).As<float>(),
            std::vector<float>({1, 2, 3, 4, 7, 8, 5, 6}));
  EXPECT_EQ(RunOne(WeirNode("Flip"), {in, no, yes}).As<float>(), same);
}

// Many rows, a long row, and a large pixel: each is cut otherwise.
TEST_P(PictureTest, LargePicturesAreWhatTheirPixelsAre) {
  for (const Dims& dims :
       {Dims{2, 700, 129, 5}, Dims{2, 3, 70'001, 4}, Dims{2, 2, 3, 300'001}}) {
    SCOPED_TRACE(DimsString(dims));
    const int64_t height = dims[1], width = dims[2], channels = dims[3];
    std::vector<uint8_t> pixels(
        static_cast<size_t>(2 * height * width * channels));
    for (size_t i = 0; i < pixels.size(); ++i) {
      pixels[i] = static_cast<uint8_t>(i * i % 251);
    }
    const Value in = Of<uint8_t>(dims, pixels);
    const auto at = [&](int64_t n, int64_t y, int64_t x, int64_t c) {
      return pixels[static_cast<size_t>(
          ((n * height + y) * width + x) * channels + c)];
    };
    const auto made = [&](int64_t rows, int64_t columns, auto pixel) {
      std::vector<uint8_t> out;
      for (int64_t n = 0; n < 2; ++n) {
        for (int64_t y = 0; y < rows; ++y) {
          for (int64_t x = 0; x < columns; ++x) {
            for (int64_t c = 0; c < channels; ++c) {
              out.push_back(pixel(n, y, x, c));
            }
          }
        }
      }
      return out;
    };
    EXPECT_TRUE(
        RunOne(WeirNode("Flip", Attrs({{"vertical", int64_t{1}}})), {in})
            .As<uint8_t>() ==
        made(height, width, [&](auto n, auto y, auto x, auto c) {
          return at(n, height - 1 - y, width - 1 - x, c);
        }));
    EXPECT_TRUE(
        RunOne(
            WeirNode("Crop", Attrs({{"crop_w", static_cast<float>(width - 2)},
                                    {"crop_pos_x", 1.0f}})),
            {in})
            .As<uint8_t>() ==
        made(height, width - 2, [&](auto n, auto y, auto x, auto c) {
          return at(n, y, x + 2, c);
        }));
    if (channels > 65536) continue;
    for (const int64_t dtype : {1, 2}) {  // float, uint8
      const auto normalized = [&](const char* layout) {
        return RunOne(
            WeirNode("Normalize", Attrs({{"output_layout", std::string(layout)},
                                         {"dtype", dtype},
                                         {"shift", 3.0f}})),
            {in});
      };
      const std::vector<double> hwc = ToDoubles(normalized("HWC"));
      const std::vector<double> chw = ToDoubles(normalized("CHW"));
      bool same = true;
      for (size_t i = 0; i < pixels.size(); ++i) {
        const auto plane = static_cast<size_t>(height * width);
        const auto depth = static_cast<size_t>(channels);
        const size_t n = i / plane / depth, pixel = i / depth % plane;
        const double value =
            std::min(pixels[i] + 3.0, dtype == 2 ? 255.0 : 1e9);
        same = same && hwc[i] == value &&
               chw[(n * depth + i % depth) * plane + pixel] == value;
      }
      EXPECT_TRUE(same) << "of type " << dtype;
    }
  }
}

TEST_P(PictureTest, NormalizesToBothLayouts) {
  const std::vector<float> mean = {120, 110, 100}, deviation = {60, 50, 40};
  for (const DType dtype : {DType::kUint8, DType::kFloat}) {
    const Value in = Rounded(dtype, {2, 5, 7, 3}, Spread(210, 0, 255, 7));
    const std::vector<double> v = ToDoubles(in);
    std::vector<double> hwc, chw(v.size());
    for (size_t i = 0; i < v.size(); ++i) {
      const size_t c = i % 3, pixel = i / 3 % 35, n = i / 105;
      const double value = (v[i] - static_cast<double>(mean[c])) /
                               static_cast<double>(deviation[c]) * 2 +
                           0.5;
      hwc.push_back(value);
      chw[n * 105 + c * 35 + pixel] = value;
    }
    Attributes attributes = Attrs({{"mean", mean},
                                   {"stddev", deviation},
                                   {"scale", 2.0f},
                                   {"shift", 0.5f}});
    const Bound bound = {.ulps = 1, .absolute = 4 * 16 * 0x1p-24};
    const Value plain = RunOne(WeirNode("Normalize", attributes), {in});
    EXPECT_EQ(plain.dims, Dims({2, 5, 7, 3}));
    ExpectClose(plain, hwc, bound);
    attributes.Set("output_layout", std::string("CHW"));
    const Value planes = RunOne(WeirNode("Normalize", attributes), {in});
    EXPECT_EQ(planes.dims, Dims({2, 3, 5, 7}));
    ExpectClose(planes, chw, bound);
    attributes.Set("dtype", int64_t{10});
    ExpectClose(RunOne(WeirNode("Normalize", attributes), {in}), chw,
                {.ulps = 0.51, .absolute = bound.absolute});
  }
}

TEST_P(PictureTest, NormalizesToIntegers) {
  const Value in =
      Of<float>({1, 7, 1}, {-3, -0.5f, 0.49f, 0.5f, 1.5f, 254.5f, 300});
  const auto to = [&](int64_t dtype) {
    return RunOne(WeirNode("Normalize", Attrs({{"dtype", dtype}})), {in});
  };
  EXPECT_EQ(to(2).As<uint8_t>(),
            std::vector<uint8_t>({0, 0, 0, 1, 2, 255, 255}));
  EXPECT_EQ(to(3).As<int8_t>(),
            std::vector<int8_t>({-3, -1, 0, 1, 2, 127, 127}));
}

TEST(PictureInferTest, KnowsWhatItCan) {
  NodeInfo node = WeirNode("Resize", Attrs({{"resize_shorter", 256.0f}}));
  node.input_types = {DType::kUint8};
  const Dim n = Dim::Symbol(0), h = Dim::Symbol(1);
  EXPECT_EQ(InferShapes(node, {Shape({n, 480, 640, 3})})->at(0),
            "uint8[s0,256,341,3]");
  EXPECT_EQ(InferShapes(node, {Shape({h, 640, 3})})->at(0), "uint8[?,?,3]");
  node.attributes = Attrs({{"resize_x", 10.0f}, {"resize_y", -20.0f}});
  EXPECT_EQ(InferShapes(node, {Shape({h, 640, 3})})->at(0), "uint8[20,10,3]");
  NodeInfo crop = WeirNode("Crop", Attrs({{"crop_h", 224.0f}}));
  crop.input_types = {DType::kUint8};
  EXPECT_EQ(InferShapes(crop, {Shape({h, 640, 3})})->at(0), "uint8[224,640,3]");
  NodeInfo normalize =
      WeirNode("Normalize", Attrs({{"output_layout", std::string("CHW")}}));
  normalize.input_types = {DType::kUint8};
  EXPECT_EQ(InferShapes(normalize, {Shape({n, 4, 5, 3})})->at(0),
            "float[s0,3,4,5]");
}

TEST(PictureInferTest, RefusesBadArguments) {
  const auto refused = [](const std::string& op, Attributes attributes,
                          std::vector<Dim> dims) {
    NodeInfo node = WeirNode(op, std::move(attributes));
    node.input_types = {DType::kUint8};
    return InferShapes(node, {Shape(std::move(dims))}).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused("Resize", {}, {4, 4}));
  EXPECT_TRUE(refused("Resize", Attrs({{"resize_x", 1e9f}}), {4, 4, 3}));
  EXPECT_TRUE(refused("Resize",
                      Attrs({{"resize_x", 4.0f}, {"resize_shorter", 4.0f}}),
                      {4, 4, 3}));
  EXPECT_TRUE(refused("Resize", Attrs({{"interp_type", std::string("cubic")}}),
                      {4, 4, 3}));
  EXPECT_TRUE(refused("Resize", Attrs({{"resize_x", 4.0f}}), {0, 4, 3}));
  EXPECT_TRUE(refused("Crop", Attrs({{"crop_w", 5.0f}}), {4, 4, 3}));
  EXPECT_TRUE(refused("Crop", Attrs({{"crop_w", -1.0f}}), {4, 4, 3}));
  EXPECT_TRUE(refused("Crop", Attrs({{"crop_w", NAN}}), {4, 4, 3}));
  EXPECT_TRUE(refused("Crop", Attrs({{"crop_w", 2.0f}, {"crop_pos_x", 1.5f}}),
                      {4, 4, 3}));
  using Floats = std::vector<float>;
  EXPECT_TRUE(refused("Normalize", Attrs({{"mean", Floats{1, 2}}}), {4, 4, 3}));
  EXPECT_TRUE(refused("Normalize", Attrs({{"stddev", Floats{0}}}), {4, 4, 3}));
  EXPECT_TRUE(refused("Normalize",
                      Attrs({{"stddev", Floats{1e-38f}}, {"scale", 255.0f}}),
                      {4, 4, 3}));
  // However many channels the picture will have, it has no more.
  for (const char* list : {"mean", "stddev"}) {
    EXPECT_FALSE(refused("Normalize", Attrs({{list, Floats(65536, 1)}}),
                         {Dim(), Dim(), Dim()}));
    EXPECT_TRUE(refused("Normalize", Attrs({{list, Floats(65537, 1)}}),
                        {Dim(), Dim(), Dim()}));
  }
  EXPECT_TRUE(refused("Normalize", Attrs({{"dtype", int64_t{7}}}), {4, 4, 3}));
}

}  // namespace
}  // namespace weir
