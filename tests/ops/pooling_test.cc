// MaxPool is exact. AveragePool: half a unit in the last place of the type plus
// (k + 1) * 2^-24 (2^-53 for double) of the largest magnitude, k the number of
// elements in a window. GlobalAveragePool: summed in double, rounded once.
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/backend/devices.h"
#include "kernels/ops/registry.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(PoolingTest);

using List = std::vector<int64_t>;

SymbolicShape Shape(std::vector<Dim> dims) {
  return SymbolicDims(dims.begin(), dims.end());
}

// Two spatial axes.
struct Pool {
  int64_t planes;
  std::array<int64_t, 2> in, kernel, stride, dilation, begin, end, out;
};

// Calls fn(output index, positions in the plane, taps with padding) for each
// window.
template <typename Fn>
void ForEachWindow(const Pool& p, const Fn& fn) {
  size_t index = 0;
  for (int64_t plane = 0; plane < p.planes; ++plane) {
    for (int64_t i = 0; i < p.out[0]; ++i) {
      for (int64_t j = 0; j < p.out[1]; ++j) {
        std::vector<int64_t> positions;
        int64_t padded = 0;
        for (int64_t a = 0; a < p.kernel[0]; ++a) {
          for (int64_t b = 0; b < p.kernel[1]; ++b) {
            const int64_t y = i * p.stride[0] - p.begin[0] + a * p.dilation[0];
            const int64_t x = j * p.stride[1] - p.begin[1] + b * p.dilation[1];
            if (y < p.in[0] + p.end[0] && x < p.in[1] + p.end[1]) ++padded;
            if (y < 0 || x < 0 || y >= p.in[0] || x >= p.in[1]) continue;
            positions.push_back((plane * p.in[0] + y) * p.in[1] + x);
          }
        }
        fn(index++, positions, padded);
      }
    }
  }
}

Attributes PoolAttributes(const Pool& p, bool ceil = false) {
  const auto list = [](const std::array<int64_t, 2>& a) {
    return List{a[0], a[1]};
  };
  return Attrs({{"kernel_shape", list(p.kernel)},
                {"strides", list(p.stride)},
                {"dilations", list(p.dilation)},
                {"pads", List{p.begin[0], p.begin[1], p.end[0], p.end[1]}},
                {"ceil_mode", int64_t{ceil}}});
}

constexpr Pool kPools[] = {
    {6, {9, 11}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}, {5, 6}},
    {6, {8, 7}, {2, 3}, {1, 2}, {2, 1}, {0, 1}, {1, 0}, {7, 3}},
    {6, {5, 5}, {5, 5}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
};

TEST_P(PoolingTest, MaxPoolOfEveryType) {
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16,
                            DType::kBfloat16, DType::kInt8, DType::kUint8}) {
    for (const Pool& p : kPools) {
      SCOPED_TRACE(std::string(DTypeName(dtype)));
      const double low = dtype == DType::kUint8 ? 0 : -100;
      const Value x = Rounded(dtype, {2, 3, p.in[0], p.in[1]},
                              Spread(6 * p.in[0] * p.in[1], low, 100, 1));
      const std::vector<double> values = ToDoubles(x);
      std::vector<double> exact;
      List where;
      ForEachWindow(p, [&](size_t, const List& positions, int64_t) {
        int64_t best = positions[0];
        for (const int64_t at : positions) {
          if (values[static_cast<size_t>(at)] >
              values[static_cast<size_t>(best)]) {
            best = at;
          }
        }
        exact.push_back(values[static_cast<size_t>(best)]);
        where.push_back(best);
      });
      NodeInfo node = Node("MaxPool", PoolAttributes(p));
      node.num_outputs = 2;
      const auto outputs = Run(node, {x});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const Dims dims = {2, 3, p.out[0], p.out[1]};
      ExpectEqual((*outputs)[0], Rounded(dtype, dims, exact));
      ExpectEqual((*outputs)[1], Of<int64_t>(dims, where));
      ExpectEqual(RunOne(Node("MaxPool", PoolAttributes(p)), {x}),
                  Rounded(dtype, dims, exact));
    }
  }
}

TEST_P(PoolingTest, MaxPoolIndicesInColumnMajorOrder) {
  const Value x = Of<float>({1, 2, 2, 3}, {1, 5, 2, 3, 4, 0,  //
                                           0, 1, 2, 9, 4, 5});
  NodeInfo node = Node("MaxPool", Attrs({{"kernel_shape", List{2, 3}},
                                         {"storage_order", int64_t{1}}}));
  node.num_outputs = 2;
  const auto outputs = Run(node, {x});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ExpectEqual((*outputs)[0], Of<float>({1, 2, 1, 1}, {5, 9}));
  // Row 0, column 1: 0 + 1 * 2; row 1, column 0 of the second plane: 6 + 1.
  ExpectEqual((*outputs)[1], Of<int64_t>({1, 2, 1, 1}, {2, 7}));
}

TEST_P(PoolingTest, MaxPoolOverOneAndThreeAxes) {
  ExpectEqual(RunOne(Node("MaxPool", Attrs({{"kernel_shape", List{2}},
                                            {"strides", List{2}}})),
                     {Of<float>({1, 1, 5}, {1, 3, 2, -1, 7})}),
              Of<float>({1, 1, 2}, {3, 2}));
  ExpectEqual(RunOne(Node("MaxPool", Attrs({{"kernel_shape", List{2}},
                                            {"strides", List{2}},
                                            {"ceil_mode", int64_t{1}}})),
                     {Of<float>({1, 1, 5}, {1, 3, 2, -1, 7})}),
              Of<float>({1, 1, 3}, {3, 2, 7}));
  ExpectEqual(RunOne(Node("MaxPool", Attrs({{"kernel_shape", List{2, 2, 2}}})),
                     {Of<float>({1, 1, 2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8})}),
              Of<float>({1, 1, 1, 1, 1}, {8}));
}

TEST_P(PoolingTest, NanIsTheLargest) {
  const std::vector<float> y =
      RunOne(Node("MaxPool", Attrs({{"kernel_shape", List{2}}})),
             {Of<float>({1, 1, 4}, {1, NAN, 2, 3})})
          .As<float>();
  ASSERT_EQ(y.size(), 3u);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 3.0f);
}

TEST_P(PoolingTest, AveragePoolOfEveryType) {
  for (const DType dtype :
       {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBfloat16}) {
    for (const Pool& p : kPools) {
      for (const bool include_pad : {false, true}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) +
                     (include_pad ? " with padding" : ""));
        const Value x = Rounded(dtype, {2, 3, p.in[0], p.in[1]},
                                Spread(6 * p.in[0] * p.in[1], -1, 1, 2));
        const std::vector<double> values = ToDoubles(x);
        std::vector<double> exact;
        ForEachWindow(p, [&](size_t, const List& positions, int64_t padded) {
          double sum = 0;
          for (const int64_t at : positions) {
            sum += values[static_cast<size_t>(at)];
          }
          exact.push_back(
              sum / static_cast<double>(
                        include_pad ? padded
                                    : static_cast<int64_t>(positions.size())));
        });
        Attributes attributes = PoolAttributes(p);
        attributes.Set("count_include_pad", int64_t{include_pad});
        const double epsilon = dtype == DType::kDouble ? 0x1p-53 : 0x1p-24;
        ExpectClose(
            RunOne(Node("AveragePool", std::move(attributes)), {x}), exact,
            {.ulps = 0.51,
             .absolute =
                 static_cast<double>(p.kernel[0] * p.kernel[1] + 1) * epsilon});
      }
    }
  }
}

// The part of a window beyond the declared pads never counts.
TEST_P(PoolingTest, AveragePoolRoundedUp) {
  for (const int64_t include_pad : {0, 1}) {
    ExpectEqual(
        RunOne(Node("AveragePool", Attrs({{"kernel_shape", List{2}},
                                          {"strides", List{2}},
                                          {"ceil_mode", int64_t{1}},
                                          {"count_include_pad", include_pad}})),
               {Of<float>({1, 1, 5}, {1, 3, 2, 4, 7})}),
        Of<float>({1, 1, 3}, {2, 3, 7}));
  }
}

// ceil((in + pads - kernel) / stride) + 1 is one where the window is larger.
TEST_P(PoolingTest, TheOnlyWindowMayReachOverTheEnd) {
  const Attributes attributes = Attrs({{"kernel_shape", List{3, 3}},
                                       {"strides", List{2, 2}},
                                       {"ceil_mode", int64_t{1}}});
  const Value x = Of<float>({1, 1, 2, 2}, {0, 1, 2, 3});
  ExpectEqual(RunOne(Node("MaxPool", attributes), {x}),
              Of<float>({1, 1, 1, 1}, {3}));
  for (const int64_t include_pad : {0, 1}) {
    Attributes average = attributes;
    average.Set("count_include_pad", include_pad);
    ExpectEqual(RunOne(Node("AveragePool", average), {x}),
                Of<float>({1, 1, 1, 1}, {1.5}));
  }
  ExpectEqual(RunOne(Node("MaxPool", Attrs({{"kernel_shape", List{2}},
                                            {"strides", List{2}},
                                            {"ceil_mode", int64_t{1}}})),
                     {Of<float>({1, 1, 1}, {7})}),
              Of<float>({1, 1, 1}, {7}));
}

// Also where the windows come out even.
TEST_P(PoolingTest, NoWindowOfCeilModeBeginsInThePaddingAtTheEnd) {
  ExpectEqual(RunOne(Node("MaxPool", Attrs({{"kernel_shape", List{1}},
                                            {"pads", List{0, 1}},
                                            {"ceil_mode", int64_t{1}}})),
                     {Of<float>({1, 1, 2}, {1, 2})}),
              Of<float>({1, 1, 2}, {1, 2}));
  ExpectEqual(RunOne(Node("AveragePool", Attrs({{"kernel_shape", List{2}},
                                                {"strides", List{2}},
                                                {"pads", List{1, 2}},
                                                {"ceil_mode", int64_t{1}}})),
                     {Of<float>({1, 1, 3}, {1, 2, 3})}),
              Of<float>({1, 1, 2}, {1, 2.5}));
  // One window goes at most, as in ONNX.
  ExpectEqual(RunOne(Node("AveragePool", Attrs({{"kernel_shape", List{1}},
                                                {"pads", List{0, 3}},
                                                {"ceil_mode", int64_t{1}}})),
                     {Of<float>({1, 1, 2}, {1, 2})}),
              Of<float>({1, 1, 4}, {1, 2, 0, 0}));
}

TEST_P(PoolingTest, AverageOfPaddingAlone) {
  ExpectEqual(RunOne(Node("AveragePool", Attrs({{"kernel_shape", List{2}},
                                                {"pads", List{1, 1}}})),
                     {Of<float>({1, 1, 0}, {})}),
              Of<float>({1, 1, 1}, {0}));
}

// More than 2^20 elements in each window, in one row of it too: the CPU asks
// within it whether anybody wants the result. Whole numbers, whose sums are
// exact.
TEST_P(PoolingTest, LongWindows) {
  constexpr Pool kLong[] = {
      {1, {2060, 2062}, {1030, 1031}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {2, 2}},
      {1,
       {2, 2'200'000},
       {2, 1'100'000},
       {1, 1},
       {2, 2},
       {1, 1},
       {1, 1},
       {2, 4}}};
  for (const Pool& p : kLong) {
    SCOPED_TRACE(p.in[1]);
    const int64_t n = p.in[0] * p.in[1];
    // No two are the same, where the greatest is looked for.
    std::vector<float> different(static_cast<size_t>(n)), small(different);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t mixed = (i * 2654435761) & ((1 << 23) - 1);
      different[static_cast<size_t>(i)] = static_cast<float>(mixed);
      small[static_cast<size_t>(i)] = static_cast<float>(mixed >> 20);
    }
    std::vector<double> mean;
    List where;
    ForEachWindow(p, [&](size_t, const List& positions, int64_t) {
      double sum = 0;
      size_t best = static_cast<size_t>(positions[0]);
      for (const int64_t position : positions) {
        const auto at = static_cast<size_t>(position);
        sum += static_cast<double>(small[at]);
        if (different[at] > different[best]) best = at;
      }
      mean.push_back(sum / static_cast<double>(positions.size()));
      where.push_back(static_cast<int64_t>(best));
    });
    const Dims in = {1, 1, p.in[0], p.in[1]};
    const Dims out = {1, 1, p.out[0], p.out[1]};
    std::vector<float> greatest;
    for (const int64_t at : where) {
      greatest.push_back(different[static_cast<size_t>(at)]);
    }
    ExpectClose(
        RunOne(Node("AveragePool", PoolAttributes(p)), {Of<float>(in, small)}),
        mean, {.ulps = 0.51});
    NodeInfo node = Node("MaxPool", PoolAttributes(p));
    const Value x = Of<float>(in, different);
    ExpectEqual(RunOne(node, {x}), Of<float>(out, greatest));
    node.num_outputs = 2;
    const auto outputs = Run(node, {x});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectEqual((*outputs)[0], Of<float>(out, greatest));
    ExpectEqual((*outputs)[1], Of<int64_t>(out, where));
  }
}

// With 2^15 channels a window is long from 33 positions on, in a row of it too.
TEST(PoolingLayoutTest, LongWindowsAnswerAlikeInBothLayouts) {
  constexpr int64_t kChannels = 1 << 15;
  struct Case {
    List in, kernel, pads, out;
  };
  const Case cases[] = {
      {{4, 4, 18}, {2, 2, 9}, {0, 0, 1, 0, 0, 1}, {2, 2, 4}},
      {{1, 2, 67}, {1, 2, 34}, {0, 1, 1, 0, 1, 1}, {1, 2, 3}}};
  const auto registry = MakeOpRegistry();
  const auto device = *MakeDevice("cpu", {.cpu_threads = 1}, *registry);
  const auto stream = *device->CreateStream(0);
  for (const Case& c : cases) {
    const auto meta = [&](const List& axes, Layout layout) {
      const int64_t pixels = axes[0] * axes[1] * axes[2];
      TensorMeta m = {.dtype = DType::kFloat,
                      .dims = {1, kChannels, axes[0], axes[1], axes[2]},
                      .elements = kChannels * pixels};
      m.bytes = static_cast<size_t>(m.elements) * sizeof(float);
      m.layout = layout;
      return m;
    };
    const int64_t pixels = c.in[0] * c.in[1] * c.in[2];
    std::vector<float> x(static_cast<size_t>(kChannels * pixels)), x_last(x);
    for (int64_t i = 0; i < kChannels * pixels; ++i) {
      const float value = static_cast<float>(((i * 2654435761) >> 8) & 1023);
      x[static_cast<size_t>(i)] = value;
      x_last[static_cast<size_t>(i % pixels * kChannels + i / pixels)] = value;
    }
    for (const char* op : {"MaxPool", "AveragePool"}) {
      SCOPED_TRACE(op);
      NodeInfo node = Node(op, Attrs({{"kernel_shape", c.kernel},
                                      {"dilations", List{2, 2, 2}},
                                      {"pads", c.pads}}));
      node.input_types = {DType::kFloat};
      const auto kernel = registry->CreateKernel(node, *device);
      ASSERT_TRUE(kernel.ok()) << kernel.status();
      const auto run = [&](Layout layout, const std::vector<float>& from) {
        const TensorMeta in = meta(c.in, layout), out = meta(c.out, layout);
        const std::vector<std::vector<int64_t>> ints(1);
        const auto plan = (*kernel)->Plan({{&in, 1}, {&out, 1}, ints});
        EXPECT_TRUE(plan.ok()) << plan.status();
        std::vector<float> y(static_cast<size_t>(out.elements), -1.0f);
        const void* const read = from.data();
        void* const written = y.data();
        EXPECT_TRUE((*plan)
                        ->Run({.stream = *stream,
                               .inputs = {&read, 1},
                               .outputs = {&written, 1},
                               .random = {}})
                        .ok());
        return y;
      };
      const std::vector<float> y = run(Layout::kRowMajor, x);
      const std::vector<float> y_last = run(Layout::kChannelsLast, x_last);
      const auto windows = y.size() / kChannels;
      size_t differ = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        if (y[i] != y_last[i % windows * kChannels + i / windows]) ++differ;
      }
      EXPECT_EQ(differ, 0u) << "of " << y.size();
    }
  }
}

TEST_P(PoolingTest, PadsByItself) {
  const Value x = Of<float>({1, 1, 4}, {1, 2, 3, 4});
  const auto run = [&](std::string pad) {
    return RunOne(Node("AveragePool", Attrs({{"kernel_shape", List{2}},
                                             {"auto_pad", std::move(pad)}})),
                  {x});
  };
  ExpectEqual(run("SAME_UPPER"), Of<float>({1, 1, 4}, {1.5, 2.5, 3.5, 4}));
  ExpectEqual(run("SAME_LOWER"), Of<float>({1, 1, 4}, {1, 1.5, 2.5, 3.5}));
  ExpectEqual(run("VALID"), Of<float>({1, 1, 3}, {1.5, 2.5, 3.5}));
}

// The mean is 1 + 2^-11 + 2^-26: nearer to the upper of two halves, and between
// them as a float.
// Beside an axis of zero the others may have any product.
TEST_P(PoolingTest, PlanesOfNothingTakeNoTime) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const Attributes attributes =
      Attrs({{"kernel_shape", std::vector<int64_t>{2}},
             {"auto_pad", std::string("SAME_UPPER")}});
  for (const Dims& dims : {Dims{kHuge, 2, 0}, Dims{kHuge, kHuge, 0}}) {
    for (const char* op : {"MaxPool", "AveragePool"}) {
      EXPECT_EQ(RunOne(Node(op, attributes), {Of<float>(dims, {})}).dims, dims);
    }
  }
}

TEST_P(PoolingTest, GlobalAveragePoolOfHalvesRoundsOnce) {
  constexpr int64_t kSide = 256;
  std::vector<double> values(size_t{kSide * kSide}, 1);
  std::fill_n(values.begin(), 32, 2);
  values.back() = 1 + 0x1p-10;
  const Value x = Rounded(DType::kFloat16, {1, 1, kSide, kSide}, values);
  const Value y = RunOne(Node("GlobalAveragePool"), {x});
  EXPECT_EQ(ToDoubles(y), std::vector<double>{1 + 0x1p-10});
}

TEST_P(PoolingTest, GlobalAveragePoolOfEveryType) {
  for (const DType dtype :
       {DType::kFloat, DType::kDouble, DType::kFloat16, DType::kBfloat16}) {
    for (const Dims& dims : {Dims{2, 3, 7, 7}, Dims{2, 3, 1000},
                             Dims{1, 6, 3, 4, 5}, Dims{2, 3}}) {
      SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + DimsString(dims));
      const int64_t n = NumElements(dims).value();
      const Value x = Rounded(dtype, dims, Spread(n, -1, 1, 3));
      const std::vector<double> values = ToDoubles(x);
      std::vector<double> exact;
      for (int64_t p = 0; p < 6; ++p) {
        double sum = 0;
        for (int64_t i = 0; i < n / 6; ++i) {
          sum += values[static_cast<size_t>(p * (n / 6) + i)];
        }
        exact.push_back(sum / static_cast<double>(n / 6));
      }
      ExpectClose(RunOne(Node("GlobalAveragePool"), {x}), exact,
                  {.ulps = 0.51, .absolute = static_cast<double>(n) * 0x1p-53});
    }
  }
}

TEST(PoolingInferTest, KnowsWhatItCan) {
  NodeInfo node =
      Node("MaxPool",
           Attrs({{"kernel_shape", List{2, 2}}, {"strides", List{2, 2}}}));
  node.input_types = {DType::kFloat};
  EXPECT_EQ(
      InferShapes(node, {Shape({Dim::Symbol(0), 3, Dim::Symbol(1), 9})})->at(0),
      "float[s0,3,?,4]");
  EXPECT_FALSE(InferShapes(node, {Shape({1, 1, 1, 9})}).ok());
  EXPECT_FALSE(InferShapes(node, {Shape({1, 1, 9})}).ok());
  EXPECT_FALSE(InferShapes(node, {Shape({1, 9})}).ok());
  // A stride or more beyond the end, or nothing but an end.
  node.attributes.Set("ceil_mode", int64_t{1});
  EXPECT_FALSE(InferShapes(node, {Shape({1, 1, 0, 9})}).ok());
  node.attributes.Set("strides", List{1, 1});
  EXPECT_FALSE(InferShapes(node, {Shape({1, 1, 1, 9})}).ok());
  EXPECT_FALSE(
      InferShapes(node, {Shape({0, 1, std::numeric_limits<int64_t>::max(), 9})})
          .ok());
  NodeInfo global = Node("GlobalAveragePool");
  global.input_types = {DType::kFloat};
  EXPECT_EQ(InferShapes(global, {Shape({Dim::Symbol(0), 3, Dim(), 9})})->at(0),
            "float[s0,3,1,1]");
  EXPECT_FALSE(InferShapes(global, {Shape({1, 3, 0})}).ok());
}

}  // namespace
}  // namespace weir
