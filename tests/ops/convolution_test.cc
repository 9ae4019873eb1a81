// Conv against sums in double. Bound: half a unit in the last place of the type
// plus (k + 2) * 2^-24 (2^-53 for double) of the sum of magnitudes, k the
// number of products; inputs and weights lie in [-1, 1].
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "kernels/ops/onednn_adapter.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(ConvolutionTest);

constexpr DType kFloating[] = {DType::kFloat, DType::kDouble, DType::kFloat16,
                               DType::kBfloat16};

SymbolicShape Shape(std::vector<Dim> dims) {
  return SymbolicDims(dims.begin(), dims.end());
}

// Three spatial axes; cases with fewer have leading axes of 1.
struct Case {
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  int rank = 2;
  std::array<int64_t, 3> in, kernel;
  std::array<int64_t, 3> stride = {1, 1, 1};
  std::array<int64_t, 3> dilation = {1, 1, 1};
  std::array<int64_t, 3> begin = {0, 0, 0};
  std::array<int64_t, 3> end = {0, 0, 0};
  std::string auto_pad = {};
  bool bias = true;

  std::vector<int64_t> Last(const std::array<int64_t, 3>& values) const {
    return {values.end() - rank, values.end()};
  }
  Dims Shape(int64_t first, int64_t second,
             const std::array<int64_t, 3>& spatial) const {
    Dims dims = {first, second};
    for (const int64_t size : Last(spatial)) dims.push_back(size);
    return dims;
  }
  std::array<int64_t, 3> Out() const {
    std::array<int64_t, 3> out;
    for (size_t i = 0; i < 3; ++i) {
      out[i] = (in[i] + begin[i] + end[i] - (kernel[i] - 1) * dilation[i] - 1) /
                   stride[i] +
               1;
    }
    return out;
  }
};

std::vector<double> Convolve(const Case& c, const std::vector<double>& x,
                             const std::vector<double>& w,
                             const std::vector<double>& b) {
  const auto out = c.Out();
  const int64_t group_in = c.in_channels / c.groups;
  const int64_t group_out = c.out_channels / c.groups;
  std::vector<double> y;
  const auto read = [&](int64_t n, int64_t ch, int64_t z, int64_t i,
                        int64_t j) {
    if (z < 0 || i < 0 || j < 0 || z >= c.in[0] || i >= c.in[1] ||
        j >= c.in[2]) {
      return 0.0;
    }
    return x[static_cast<size_t>(
        (((n * c.in_channels + ch) * c.in[0] + z) * c.in[1] + i) * c.in[2] +
        j)];
  };
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.out_channels; ++o) {
      for (int64_t z = 0; z < out[0]; ++z) {
        for (int64_t i = 0; i < out[1]; ++i) {
          for (int64_t j = 0; j < out[2]; ++j) {
            double sum = b.empty() ? 0 : b[static_cast<size_t>(o)];
            const double* weight = &w[static_cast<size_t>(
                o * group_in * c.kernel[0] * c.kernel[1] * c.kernel[2])];
            for (int64_t ch = 0; ch < group_in; ++ch) {
              for (int64_t a = 0; a < c.kernel[0]; ++a) {
                for (int64_t p = 0; p < c.kernel[1]; ++p) {
                  for (int64_t q = 0; q < c.kernel[2]; ++q) {
                    sum +=
                        *weight++ *
                        read(n, o / group_out * group_in + ch,
                             z * c.stride[0] - c.begin[0] + a * c.dilation[0],
                             i * c.stride[1] - c.begin[1] + p * c.dilation[1],
                             j * c.stride[2] - c.begin[2] + q * c.dilation[2]);
                  }
                }
              }
            }
            y.push_back(sum);
          }
        }
      }
    }
  }
  return y;
}

NodeInfo ConvNode(const Case& c) {
  Attributes attributes = Attrs({{"group", c.groups},
                                 {"kernel_shape", c.Last(c.kernel)},
                                 {"strides", c.Last(c.stride)},
                                 {"dilations", c.Last(c.dilation)}});
  if (!c.auto_pad.empty()) {
    attributes.Set("auto_pad", c.auto_pad);
  } else {
    std::vector<int64_t> pads = c.Last(c.begin);
    for (const int64_t pad : c.Last(c.end)) pads.push_back(pad);
    attributes.Set("pads", pads);
  }
  return Node("Conv", std::move(attributes));
}

std::vector<Value> Inputs(const Case& c, DType dtype) {
  const Dims x = c.Shape(c.batch, c.in_channels, c.in);
  const Dims w = c.Shape(c.out_channels, c.in_channels / c.groups, c.kernel);
  std::vector<Value> inputs = {
      Rounded(dtype, x, Spread(NumElements(x).value(), -1, 1, 1)),
      Rounded(dtype, w, Spread(NumElements(w).value(), -1, 1, 2))};
  if (c.bias) {
    inputs.push_back(
        Rounded(dtype, {c.out_channels}, Spread(c.out_channels, -1, 1, 3)));
  }
  return inputs;
}

class Checker {
 public:
  explicit Checker(
      std::function<Value(const NodeInfo&, const std::vector<Value>&)> run)
      : run_(std::move(run)) {}

  void operator()(const Case& c, DType dtype = DType::kFloat) const {
    const std::vector<Value> inputs = Inputs(c, dtype);
    const Value y = run_(ConvNode(c), inputs);
    EXPECT_EQ(y.dims, c.Shape(c.batch, c.out_channels, c.Out()));
    const auto k = static_cast<double>(c.in_channels / c.groups * c.kernel[0] *
                                       c.kernel[1] * c.kernel[2]);
    const double epsilon = dtype == DType::kDouble ? 0x1p-53 : 0x1p-24;
    ExpectClose(y,
                Convolve(c, ToDoubles(inputs[0]), ToDoubles(inputs[1]),
                         c.bias ? ToDoubles(inputs[2]) : std::vector<double>()),
                {.ulps = 0.51, .absolute = (k + 2) * epsilon * (k + 1)});
  }

 private:
  const std::function<Value(const NodeInfo&, const std::vector<Value>&)> run_;
};

#define CHECKER                                                       \
  Checker([this](const NodeInfo& node, const std::vector<Value>& x) { \
    return RunOne(node, x);                                           \
  })

const Case kTwoAxes[] = {{.batch = 2,
                          .in_channels = 3,
                          .out_channels = 5,
                          .in = {1, 9, 11},
                          .kernel = {1, 3, 3},
                          .begin = {0, 1, 1},
                          .end = {0, 1, 1}},
                         {.in_channels = 4,
                          .out_channels = 6,
                          .groups = 2,
                          .in = {1, 10, 8},
                          .kernel = {1, 3, 2},
                          .stride = {1, 2, 3},
                          .dilation = {1, 2, 1},
                          .begin = {0, 2, 0},
                          .end = {0, 1, 3},
                          .bias = false}};

TEST_P(ConvolutionTest, TwoAxesOfEveryType) {
  const Checker check = CHECKER;
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    for (const Case& c : kTwoAxes) check(c, dtype);
  }
}

// As when constants are folded: by loops of our own.
TEST_P(ConvolutionTest, TwoAxesOfAPlanThatRunsOnce) {
  set_once(true);
  const Checker check = CHECKER;
  for (const DType dtype : kFloating) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    for (const Case& c : kTwoAxes) check(c, dtype);
  }
}

TEST_P(ConvolutionTest, OneAxis) {
  const Checker check = CHECKER;
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    check({.batch = 3,
           .in_channels = 5,
           .out_channels = 7,
           .rank = 1,
           .in = {1, 1, 50},
           .kernel = {1, 1, 4},
           .stride = {1, 1, 2},
           .dilation = {1, 1, 3},
           .begin = {0, 0, 5},
           .end = {0, 0, 2}},
          dtype);
  }
}

TEST_P(ConvolutionTest, ThreeAxes) {
  const Checker check = CHECKER;
  for (const DType dtype : {DType::kFloat, DType::kDouble}) {
    check({.in_channels = 2,
           .out_channels = 3,
           .rank = 3,
           .in = {5, 6, 7},
           .kernel = {3, 2, 3},
           .stride = {2, 1, 2},
           .begin = {1, 0, 1},
           .end = {1, 1, 2}},
          dtype);
  }
}

TEST_P(ConvolutionTest, Depthwise) {
  const Checker check = CHECKER;
  check({.batch = 2,
         .in_channels = 24,
         .out_channels = 24,
         .groups = 24,
         .in = {1, 17, 15},
         .kernel = {1, 3, 3},
         .stride = {1, 2, 2},
         .begin = {0, 1, 1},
         .end = {0, 1, 1}});
  check({.in_channels = 6,
         .out_channels = 12,
         .groups = 6,
         .in = {1, 8, 8},
         .kernel = {1, 5, 5},
         .begin = {0, 2, 2},
         .end = {0, 2, 2}},
        DType::kDouble);
}

// Sizes at which the CPU cuts rows into bands, and output channels into slices.
TEST_P(ConvolutionTest, LargeEnoughToBeCut) {
  const Checker check = CHECKER;
  check({.in_channels = 16,
         .out_channels = 48,
         .in = {1, 61, 59},
         .kernel = {1, 3, 3},
         .begin = {0, 1, 1},
         .end = {0, 1, 1}});
  check({.in_channels = 24,
         .out_channels = 40,
         .in = {1, 60, 60},
         .kernel = {1, 5, 5},
         .stride = {1, 2, 2},
         .begin = {0, 2, 2},
         .end = {0, 1, 1}});
  check({.in_channels = 64,
         .out_channels = 256,
         .in = {1, 14, 14},
         .kernel = {1, 3, 3},
         .begin = {0, 1, 1},
         .end = {0, 1, 1}});
  check({.batch = 3,
         .in_channels = 256,
         .out_channels = 512,
         .in = {1, 7, 7},
         .kernel = {1, 1, 1}});
}

// Whole numbers, of which any order of summing up gives the same.
Value Wholes(const Dims& dims, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(NumElements(dims).value()));
  for (float& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(seed >> 33) / 0x1p31f < 0.5f ? -1.0f : 1.0f;
  }
  return Of<float>(dims, values);
}

// Rows `begin` to `end` of x [1, C, H, W], zeros where it has none.
Value Rows(const Value& x, int64_t begin, int64_t end) {
  const std::vector<float> from = x.As<float>();
  std::vector<float> rows;
  for (int64_t c = 0; c < x.dims[1]; ++c) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < x.dims[3]; ++j) {
        rows.push_back(i < 0 || i >= x.dims[2]
                           ? 0.0f
                           : from[static_cast<size_t>(
                                 (c * x.dims[2] + i) * x.dims[3] + j)]);
      }
    }
  }
  return Of<float>({1, x.dims[1], end - begin, x.dims[3]}, rows);
}

// What the CPU cuts so that no call of its library is long, against the same
// by rows.
TEST_P(ConvolutionTest, TooLongForOneCall) {
  if (on_cuda()) GTEST_SKIP() << "the CPU's library";
  const auto check = [this](const Dims& x_dims, const Dims& w_dims,
                            int64_t stride, int64_t dilation, int64_t before,
                            int64_t after, int64_t step) {
    const bool one_axis = x_dims[3] == 1;
    using List = std::vector<int64_t>;
    const auto node = [&](int64_t pad_begin, int64_t pad_end) {
      const auto axes = [&](int64_t first, int64_t second) {
        return one_axis ? List{first} : List{first, second};
      };
      return Node("Conv",
                  Attrs({{"strides", axes(stride, 1)},
                         {"dilations", axes(dilation, 1)},
                         {"pads", one_axis ? List{pad_begin, pad_end}
                                           : List{pad_begin, 0, pad_end, 0}}}));
    };
    const auto shaped = [&](Value value) {
      if (one_axis) value.dims.pop_back();
      return value;
    };
    const Value x = Wholes(x_dims, 1), w = shaped(Wholes(w_dims, 2));
    const Value bias = Wholes({w_dims[0]}, 3);
    Value y = RunOne(node(before, after), {shaped(x), w, bias});
    if (one_axis) y.dims.push_back(1);
    const int64_t reach = (w_dims[2] - 1) * dilation + 1;
    const int64_t rows = y.dims[2];
    ASSERT_EQ(rows, (x_dims[2] + before + after - reach) / stride + 1);
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t end = std::min(begin + step, rows);
      const int64_t first = begin * stride - before;
      Value part = RunOne(
          node(0, 0),
          {shaped(Rows(x, first, first + (end - begin - 1) * stride + reach)),
           w, bias});
      if (one_axis) part.dims.push_back(1);
      SCOPED_TRACE(begin);
      ExpectEqual(Rows(y, begin, end), part);
    }
  };
  check({1, 64, 3845, 1}, {63, 64, 1024, 1}, 2, 2, 700, 300, 400);
  check({1, 256, 84, 84}, {256, 256, 11, 11}, 1, 1, 3, 2, 20);
}

TEST_P(ConvolutionTest, IsReproducible) {
  const Case c = {.in_channels = 16,
                  .out_channels = 48,
                  .in = {1, 61, 59},
                  .kernel = {1, 3, 3},
                  .begin = {0, 1, 1},
                  .end = {0, 1, 1}};
  const std::vector<Value> inputs = Inputs(c, DType::kFloat);
  const Value first = RunOne(ConvNode(c), inputs);
  for (int i = 0; i < 3; ++i) ExpectEqual(RunOne(ConvNode(c), inputs), first);
}

TEST_P(ConvolutionTest, PadsByItself) {
  const Checker check = CHECKER;
  // 4 windows of 3 with stride 2 over 7 need 2 pads; over 8, one.
  check({.in = {1, 7, 8},
         .kernel = {1, 3, 3},
         .stride = {1, 2, 2},
         .begin = {0, 1, 0},
         .end = {0, 1, 1},
         .auto_pad = "SAME_UPPER"});
  check({.in = {1, 7, 8},
         .kernel = {1, 3, 3},
         .stride = {1, 2, 2},
         .begin = {0, 1, 1},
         .end = {0, 1, 0},
         .auto_pad = "SAME_LOWER"});
  check({.in = {1, 7, 8},
         .kernel = {1, 3, 3},
         .stride = {1, 2, 2},
         .auto_pad = "VALID"});
}

TEST_P(ConvolutionTest, WindowsThatSeePaddingAlone) {
  const Checker check = CHECKER;
  check({.in_channels = 3,
         .out_channels = 4,
         .in = {1, 8, 8},
         .kernel = {1, 3, 3},
         .begin = {0, 5, 5},
         .end = {0, 5, 5}});
  check({.in = {1, 1, 1},
         .kernel = {1, 1, 1},
         .stride = {1, 4, 4},
         .begin = {0, 1, 1},
         .end = {0, 1, 1}});
  // Rows of them, where the CPU cuts: at both ends, at one, and all.
  check({.batch = 2,
         .in_channels = 8,
         .out_channels = 16,
         .groups = 2,
         .in = {1, 40, 60},
         .kernel = {1, 7, 5},
         .dilation = {1, 2, 1},
         .begin = {0, 50, 2},
         .end = {0, 33, 2}});
  check({.in_channels = 64,
         .out_channels = 128,
         .in = {1, 20, 28},
         .kernel = {1, 3, 3},
         .stride = {1, 2, 1},
         .begin = {0, 31, 1},
         .end = {0, 0, 1},
         .bias = false});
  check({.in_channels = 3,
         .out_channels = 4,
         .in = {1, 1, 8},
         .kernel = {1, 1, 3},
         .stride = {1, 100, 1},
         .begin = {0, 50, 0},
         .end = {0, 250, 0}});
}

// The CPU cuts the only row of an image where code for all of it would be long.
TEST_P(ConvolutionTest, LongRows) {
  const Checker check = CHECKER;
  check({.in_channels = 2,
         .out_channels = 3,
         .rank = 1,
         .in = {1, 1, 3001},
         .kernel = {1, 1, 3},
         .begin = {0, 0, 700},
         .end = {0, 0, 1}});
  check({.batch = 2,
         .in_channels = 4,
         .out_channels = 8,
         .rank = 1,
         .in = {1, 1, 9000},
         .kernel = {1, 1, 33},
         .stride = {1, 1, 3},
         .dilation = {1, 1, 5},
         .begin = {0, 0, 80},
         .end = {0, 0, 80}});
}

// oneDNN 2.6 has a kernel that takes a pixel from behind such a row for
// padding: the next image's, or what lies behind the last.
TEST_P(ConvolutionTest, RowsThatEndInPadding) {
  constexpr int64_t kLeastPadding = 3, kMostPadding = 7;
  const Checker check = CHECKER;
  for (int64_t pad = kLeastPadding; pad <= kMostPadding; ++pad) {
    for (int64_t columns = 2 * pad - 2; columns <= 2 * pad; ++columns) {
      Case c = {.batch = 2,
                .in_channels = 3,
                .out_channels = 64,
                .rank = 1,
                .in = {1, 1, columns},
                .kernel = {1, 1, 2 * pad + 1},
                .begin = {0, 0, pad},
                .end = {0, 0, pad}};
      check(c);
      c.kernel = {1, 1, pad + 1};
      c.dilation = {1, 1, 2};
      check(c);
    }
  }
  check({.in_channels = 3,
         .out_channels = 128,
         .in = {1, 14, 14},
         .kernel = {1, 3, 7},
         .dilation = {1, 1, 2},
         .begin = {0, 1, 2},
         .end = {0, 1, 4}});
}

TEST_P(ConvolutionTest, NothingToDo) {
  const Value w = Of<float>({2, 1, 1}, {1, 1});
  EXPECT_EQ(RunOne(Node("Conv"), {Of<float>({0, 1, 4}, {}), w}).dims,
            Dims({0, 2, 4}));
  ExpectEqual(
      RunOne(Node("Conv"), {Of<float>({1, 0, 2}, {}), Of<float>({2, 0, 1}, {}),
                            Of<float>({2}, {3, 4})}),
      Of<float>({1, 2, 2}, {3, 3, 4, 4}));
}

// -- FusedConv: where the device has it ---------------------------------------

struct Ending {
  bool residual = false;
  std::string activation = {};
};

NodeInfo FusedNode(const Case& c, const Ending& ending) {
  NodeInfo node = ConvNode(c);
  node.domain = "weir";
  node.op = "FusedConv";
  if (!ending.activation.empty()) {
    node.attributes.Set("activation", ending.activation);
  }
  if (ending.activation == "Clip") {
    node.attributes.Set("low", -0.5f);
    node.attributes.Set("high", 0.75f);
  }
  return node;
}

double Activated(const Ending& ending, double x) {
  if (ending.activation == "Relu") return x < 0 ? 0 : x;
  if (ending.activation == "Clip") return x < -0.5 ? -0.5 : x > 0.75 ? 0.75 : x;
  return x;
}

std::vector<Value> FusedInputs(const Case& c, const Ending& ending,
                               DType dtype) {
  std::vector<Value> inputs = Inputs(c, dtype);
  if (!ending.residual) return inputs;
  inputs.resize(4);
  const Dims y = c.Shape(c.batch, c.out_channels, c.Out());
  inputs[3] = Rounded(dtype, y, Spread(NumElements(y).value(), -1, 1, 4));
  return inputs;
}

TEST_P(ConvolutionTest, FusedWithinAPlanThatRunsOnce) {
  const Case c = kTwoAxes[0];
  const Ending ending = {true, "Clip"};
  const std::vector<Value> inputs = FusedInputs(c, ending, DType::kFloat);
  const NodeInfo node = FusedNode(c, ending);
  NodeInfo typed = node;
  typed.input_types.assign(4, DType::kFloat);
  if (!registry().Takes(device().info(), typed)) return;
  const Value y = RunOne(node, inputs);
  set_once(true);
  ExpectClose(RunOne(node, inputs), ToDoubles(y), {.absolute = 1e-5});
}

TEST_P(ConvolutionTest, FusedEndsAsItsNodesWould) {
  const Case cases[] = {{.batch = 2,
                         .in_channels = 3,
                         .out_channels = 5,
                         .in = {1, 9, 11},
                         .kernel = {1, 3, 3},
                         .begin = {0, 1, 1},
                         .end = {0, 1, 1}},
                        {.in_channels = 16,
                         .out_channels = 48,
                         .in = {1, 61, 59},
                         .kernel = {1, 3, 3},
                         .begin = {0, 1, 1},
                         .end = {0, 1, 1},
                         .bias = false},
                        {.in_channels = 256,
                         .out_channels = 512,
                         .in = {1, 7, 7},
                         .kernel = {1, 1, 1}},
                        {.in_channels = 24,
                         .out_channels = 24,
                         .groups = 24,
                         .in = {1, 17, 15},
                         .kernel = {1, 3, 3},
                         .stride = {1, 2, 2},
                         .begin = {0, 1, 1},
                         .end = {0, 1, 1}},
                        {.in_channels = 12,
                         .out_channels = 8,
                         .groups = 4,
                         .in = {1, 9, 10},
                         .kernel = {1, 3, 3},
                         .begin = {0, 1, 1},
                         .end = {0, 1, 1}}};
  int ran = 0;
  for (const DType dtype : kFloating) {
    for (const Case& c : cases) {
      for (const Ending& ending :
           {Ending{}, Ending{false, "Relu"}, Ending{false, "Clip"},
            Ending{true}, Ending{true, "Relu"}, Ending{true, "Clip"}}) {
        const std::vector<Value> inputs = FusedInputs(c, ending, dtype);
        NodeInfo node = FusedNode(c, ending);
        for (const Value& x : inputs) node.input_types.push_back(x.dtype);
        if (!registry().Takes(device().info(), node)) continue;
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + ending.activation);
        ++ran;
        std::vector<double> exact =
            Convolve(c, ToDoubles(inputs[0]), ToDoubles(inputs[1]),
                     c.bias ? ToDoubles(inputs[2]) : std::vector<double>());
        const std::vector<double> added =
            ending.residual ? ToDoubles(inputs[3]) : std::vector<double>();
        for (size_t i = 0; i < exact.size(); ++i) {
          exact[i] =
              Activated(ending, exact[i] + (added.empty() ? 0.0 : added[i]));
        }
        const auto k = static_cast<double>(c.in_channels / c.groups *
                                           c.kernel[1] * c.kernel[2]);
        const double epsilon = dtype == DType::kDouble ? 0x1p-53 : 0x1p-24;
        // Groups of several channels: where no engine of cuDNN adds too, sums
        // are rounded to the type before.
        const double rounded = dtype == DType::kFloat16    ? 0x1p-11
                               : dtype == DType::kBfloat16 ? 0x1p-8
                                                           : epsilon;
        const double before = c.groups == 4 ? rounded * (k + 2) : 0;
        ExpectClose(
            RunOne(node, inputs), exact,
            {.ulps = 0.51, .absolute = (k + 3) * epsilon * (k + 2) + before});
      }
    }
  }
  if (!on_cuda()) {
    EXPECT_EQ(ran, 30);
  }
}

TEST_P(ConvolutionTest, FusedPassesNaNAndInfinityThrough) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const Value x = Of<float>({1, 1, 1, 4}, {1, -1, nan, 1});
  const Value w = Of<float>({1, 1, 1, 1}, {1});
  const Value r = Of<float>({1, 1, 1, 4}, {inf, -inf, 0, nan});
  for (const std::string activation : {"Relu", "Clip"}) {
    const NodeInfo node =
        FusedNode({.in = {1, 1, 4}, .kernel = {1, 1, 1}}, {true, activation});
    NodeInfo typed = node;
    typed.input_types = {DType::kFloat, DType::kFloat, DType::kInvalid,
                         DType::kFloat};
    if (!registry().Takes(device().info(), typed)) continue;
    const std::vector<float> y = RunOne(node, {x, w, {}, r}).As<float>();
    ASSERT_EQ(y.size(), 4u);
    EXPECT_EQ(y[0], activation == "Relu" ? inf : 0.75f);
    EXPECT_EQ(y[1], activation == "Relu" ? 0.0f : -0.5f);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_TRUE(std::isnan(y[3]));
  }
}

// One channel, which cuDNN does not see: it adds the bias last.
TEST_P(ConvolutionTest, FusedAddsTheBiasFirst) {
  const auto typed = [&](DType dtype, double big) {
    NodeInfo node =
        FusedNode({.in = {1, 1, 3}, .kernel = {1, 1, 1}}, {true, ""});
    node.input_types.assign(4, dtype);
    if (!registry().Takes(device().info(), node)) return;
    SCOPED_TRACE(DTypeName(dtype));
    const Value y = RunOne(
        node, {Rounded(dtype, {1, 1, 1, 3}, {big, -big, big}),
               Rounded(dtype, {1, 1, 1, 1}, {1}), Rounded(dtype, {1}, {big}),
               Rounded(dtype, {1, 1, 1, 3}, {-big, big, -big / 2})});
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    EXPECT_EQ(ToDoubles(y), ToDoubles(Rounded(dtype, {1, 1, 1, 3},
                                              {kInfinity, big, kInfinity})));
  };
  typed(DType::kFloat, 3e38);
  typed(DType::kDouble, 1.5e308);
}

TEST_P(ConvolutionTest, FusedWithNothingToSum) {
  const NodeInfo node =
      FusedNode({.in = {1, 1, 2}, .kernel = {1, 1, 1}}, {true, "Relu"});
  NodeInfo typed = node;
  typed.input_types.assign(4, DType::kFloat);
  if (!registry().Takes(device().info(), typed)) return;
  ExpectEqual(RunOne(node, {Of<float>({1, 0, 1, 2}, {}),
                            Of<float>({2, 0, 1, 1}, {}), Of<float>({2}, {3, 4}),
                            Of<float>({1, 2, 1, 2}, {1, -5, 2, -2})}),
              Of<float>({1, 2, 1, 2}, {4, 0, 6, 2}));
}

TEST(ConvolutionInferTest, KnowsWhatItCan) {
  NodeInfo node =
      Node("Conv", Attrs({{"pads", std::vector<int64_t>{1, 1, 1, 1}}}));
  node.input_types = {DType::kFloat, DType::kFloat};
  const Dim n = Dim::Symbol(0), h = Dim::Symbol(1);
  // 3 x 3 with one pad keeps the size, known or not.
  EXPECT_EQ(
      InferShapes(node, {Shape({n, 3, h, 20}), Shape({8, 3, 3, 3})})->at(0),
      "float[s0,8,s1,20]");
  EXPECT_EQ(
      InferShapes(node, {Shape({n, 3, h, 20}), Shape({8, 3, 5, 5})})->at(0),
      "float[s0,8,?,18]");
}

// Runs of one plan may read a packed copy when another comes to hold it.
TEST(PackedConvolutionTest, WhoHoldsACopyLaterWritesNothing) {
  onednn::ConvolutionSpec spec;
  spec.in_channels = 5;
  spec.out_channels = 5;
  spec.in = {9, 9, 1};
  spec.out = {7, 7, 1};
  spec.kernel = {3, 3, 1};
  const auto first = onednn::Convolution::Create(spec).value();
  spec.in[0] += 1;
  spec.out[0] += 1;
  const auto second = onednn::Convolution::Create(spec).value();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  ASSERT_EQ(first->forms(), 1u);
  ASSERT_EQ(first->FormName(0), second->FormName(0));
  const std::vector<float> weights(5 * 5 * 3 * 3, 1.0f);
  const size_t bytes = first->FormBytes(0);
  ASSERT_GT(bytes, weights.size() * sizeof(float)) << "there is padding";
  constexpr std::align_val_t kAlignment{64};
  const std::shared_ptr<std::byte> packed(
      static_cast<std::byte*>(operator new(bytes, kAlignment)),
      [](std::byte* data) { operator delete(data, kAlignment); });
  ASSERT_TRUE(first->Pack(0, weights.data(), packed.get()).ok());
  const auto held = first->Hold({packed});
  ASSERT_TRUE(held.ok()) << held.status();
  constexpr std::byte kMark{0x5a};
  std::fill_n(packed.get(), bytes, kMark);
  const auto later = second->Hold({packed});
  ASSERT_TRUE(later.ok()) << later.status();
  EXPECT_EQ(std::count(packed.get(), packed.get() + bytes, kMark),
            static_cast<std::ptrdiff_t>(bytes));
}

TEST(ConvolutionInferTest, RefusesWhatDoesNotFit) {
  NodeInfo node = Node("Conv");
  node.input_types = {DType::kFloat, DType::kFloat};
  const SymbolicShape w = Shape({8, 3, 3, 3});
  const auto refused = [&](Attributes attributes, const SymbolicShape& x) {
    node.attributes = std::move(attributes);
    return InferShapes(node, {x, w}).status().code() ==
           absl::StatusCode::kInvalidArgument;
  };
  const SymbolicShape x = Shape({1, 3, 8, 8});
  EXPECT_FALSE(refused({}, x));
  EXPECT_TRUE(refused({}, Shape({1, 4, 8, 8})));
  EXPECT_TRUE(refused({}, Shape({1, 3, 2, 8})));
  EXPECT_TRUE(refused({}, Shape({1, 3, 8})));
  EXPECT_TRUE(refused(Attrs({{"group", int64_t{0}}}), x));
  EXPECT_TRUE(refused(Attrs({{"group", int64_t{3}}}), Shape({1, 9, 8, 8})));
  // So many channels that there is no number for them, of no filters.
  node.attributes = Attrs({{"group", int64_t{1} << 62}});
  const auto status =
      InferShapes(node, {Shape({1, 2, 1}), Shape({0, 2, 1})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  using List = std::vector<int64_t>;
  EXPECT_TRUE(refused(Attrs({{"strides", List{0, 1}}}), x));
  EXPECT_TRUE(refused(Attrs({{"strides", List{1}}}), x));
  EXPECT_TRUE(refused(Attrs({{"dilations", List{1, -1}}}), x));
  EXPECT_TRUE(refused(Attrs({{"pads", List{0, 0, 0, -1}}}), x));
  EXPECT_TRUE(refused(Attrs({{"pads", List{1, 1}}}), x));
  EXPECT_TRUE(refused(Attrs({{"kernel_shape", List{3, 2}}}), x));
  EXPECT_TRUE(refused(
      Attrs({{"dilations", List{int64_t{1} << 62, int64_t{1} << 62}}}), x));
  EXPECT_TRUE(refused(Attrs({{"auto_pad", std::string("SAME")}}), x));
}

}  // namespace
}  // namespace weir
