// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ArgMax. Sums of float and half
// types are added in double and rounded once: 0.51 ulp plus 2^-50 of the sum of
// magnitudes. double: n * 2^-53 of the sum of magnitudes.
#include "kernels/ops/reduction.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/base/saturating.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(ReductionTest);

int64_t Count(const Dims& dims) { return NumElements(dims).value(); }

// The elements that end in each output, in order of outputs.
std::vector<std::vector<double>> Groups(const Value& x,
                                        const std::vector<int64_t>& axes) {
  const size_t rank = x.dims.size();
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    reduced[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank)
                                         : axis)] = true;
  }
  Dims kept;
  for (size_t d = 0; d < rank; ++d) kept.push_back(reduced[d] ? 1 : x.dims[d]);
  const Dims strides = DenseStrides(kept);
  std::vector<std::vector<double>> groups(static_cast<size_t>(Count(kept)));
  const std::vector<double> values = ToDoubles(x);
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i);
    int64_t at = 0;
    for (size_t d = rank; d-- > 0;) {
      if (!reduced[d]) at += rest % x.dims[d] * strides[d];
      rest /= x.dims[d];
    }
    groups[static_cast<size_t>(at)].push_back(values[i]);
  }
  return groups;
}

std::vector<double> Reduced(const Value& x, const std::vector<int64_t>& axes,
                            const std::string& op) {
  std::vector<double> result;
  for (const std::vector<double>& group : Groups(x, axes)) {
    long double sum = 0;
    double greatest = -INFINITY;
    double least = INFINITY;
    for (double value : group) {
      sum += static_cast<long double>(value);
      greatest = std::max(greatest, value);
      least = std::min(least, value);
    }
    const double n = static_cast<double>(group.size());
    result.push_back(
        op == "ReduceSum" ? static_cast<double>(sum)
        : op == "ReduceMean"
            ? static_cast<double>(sum / static_cast<long double>(n))
        : op == "ReduceMax" ? greatest
                            : least);
  }
  return result;
}

double Magnitude(const Value& x, const std::vector<int64_t>& axes) {
  double largest = 0;
  for (const std::vector<double>& group : Groups(x, axes)) {
    double sum = 0;
    for (double value : group) sum += std::fabs(value);
    largest = std::max(largest, sum);
  }
  return largest;
}

const char* const kOps[] = {"ReduceSum", "ReduceMean", "ReduceMax",
                            "ReduceMin"};

struct Case {
  Dims dims;
  std::vector<int64_t> axes;
};

TEST_P(ReductionTest, EveryPatternOfAxes) {
  const Case cases[] = {{{5}, {0}},
                        {{4, 6}, {0}},
                        {{4, 6}, {1}},
                        {{4, 6}, {}},
                        {{3, 4, 5}, {1}},
                        {{3, 4, 5}, {0, 2}},
                        {{3, 4, 5}, {-1, 0}},
                        {{2, 3, 4, 5, 2}, {1, 3}},
                        {{2, 3, 4, 5, 2}, {0, 2, 4}},
                        {{1, 1, 3}, {0}},
                        {{}, {}},
                        {{1000}, {0}},
                        {{200000}, {0}},    // pieces
                        {{3, 70001}, {1}},  // pieces, several outputs
                        {{500, 600}, {0}},  // bands of columns
                        {{500, 600}, {1}},
                        {{64, 3, 50, 50}, {2, 3}}};
  for (const Case& c : cases) {
    for (const char* op : kOps) {
      SCOPED_TRACE(std::string(op) + DimsString(c.dims) + DimsString(c.axes));
      for (DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16}) {
        const Value x =
            Rounded(dtype, c.dims, Spread(Count(c.dims), -1, 1.5, 17));
        std::vector<Value> inputs = {x};
        if (!c.axes.empty()) inputs.push_back(Int64s(c.axes));
        const double n = static_cast<double>(Count(c.dims));
        const double magnitude = Magnitude(x, c.axes);
        const Bound bound = {.ulps = 0.51,
                             .absolute = dtype == DType::kDouble
                                             ? n * 0x1p-53 * magnitude
                                             : 0x1p-50 * magnitude};
        ExpectClose(RunOne(Node(op), inputs), Reduced(x, c.axes, op), bound);
      }
    }
  }
}

TEST_P(ReductionTest, SmallResultsAreNotZero) {
  for (const double scale : {1e-9, 1e-20, 1e-36}) {
    const Value x =
        Rounded(DType::kFloat, {7, 40}, Spread(7 * 40, scale, 2 * scale, 18));
    for (const int64_t axis : {0, 1}) {
      for (const char* op : kOps) {
        SCOPED_TRACE(std::string(op) + " of " + std::to_string(scale));
        ExpectClose(RunOne(Node(op), {x, Int64s({axis})}),
                    Reduced(x, {axis}, op), {.ulps = 0.51});
      }
    }
  }
}

TEST_P(ReductionTest, EveryTypeThatOnnxAllows) {
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || *dtype == DType::kString) continue;
    for (const char* op : kOps) {
      SCOPED_TRACE(std::string(op) + " " + std::string(DTypeName(*dtype)));
      NodeInfo node = Node(op);
      const Value x = Rounded(*dtype, {2, 3}, {1, 0, 0, 1, 1, 1});
      const auto result = Run(node, {x, Int64s({1})});
      node.input_types = {*dtype};
      if (registry().Check(node).code() == absl::StatusCode::kUnimplemented) {
        EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
        continue;
      }
      ASSERT_TRUE(result.ok()) << result.status();
      std::vector<double> exact = Reduced(x, {1}, op);
      if (!IsFloating(*dtype)) {
        for (double& value : exact) value = std::trunc(value);
      }
      ExpectClose(result->at(0), exact, {.ulps = 0.51});
    }
  }
}

TEST_P(ReductionTest, KeepdimsAndEmptyAxes) {
  const Value x = Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto run = [&](std::vector<std::pair<std::string, AttributeValue>> a,
                       std::vector<Value> more = {}) {
    more.insert(more.begin(), x);
    return RunOne(Node("ReduceSum", Attrs(std::move(a))), more);
  };
  ExpectEqual(run({}), Of<float>({1, 1}, {21}));
  ExpectEqual(run({{"keepdims", int64_t{0}}}), Of<float>({}, {21}));
  ExpectEqual(run({{"keepdims", int64_t{0}}}, {Int64s({0})}),
              Of<float>({3}, {5, 7, 9}));
  ExpectEqual(run({{"noop_with_empty_axes", int64_t{1}}}), x);
  ExpectEqual(run({{"noop_with_empty_axes", int64_t{1}}}, {Int64s({})}), x);
  ExpectEqual(run({}, {Int64s({})}), Of<float>({1, 1}, {21}));
  ExpectEqual(RunOne(Node("ReduceMean",
                          Attrs({{"axes", std::vector<int64_t>{-1}}}), 11),
                     {x}),
              Of<float>({2, 1}, {2, 5}));
  EXPECT_FALSE(Run(Node("ReduceSum"), {x, Int64s({0, -2})}).ok());
  EXPECT_FALSE(Run(Node("ReduceSum"), {x, Int64s({2})}).ok());
}

TEST_P(ReductionTest, Corners) {
  ExpectEqual(RunOne(Node("ReduceSum"), {Of<int32_t>({2}, {INT32_MAX, 1})}),
              Of<int32_t>({1}, {INT32_MIN}));
  ExpectEqual(RunOne(Node("ReduceMean"), {Of<int32_t>({3}, {-1, -2, -4})}),
              Of<int32_t>({1}, {-2}));
  ExpectEqual(
      RunOne(Node("ReduceMean"), {Of<int32_t>({2}, {INT32_MAX, INT32_MAX})}),
      Of<int32_t>({1}, {INT32_MAX}));
  const Value nan = Of<float>({3}, {1, NAN, 2});
  for (const char* op : kOps) ExpectClose(RunOne(Node(op), {nan}), {NAN}, {});
  // The sum passes the largest half on its way.
  ExpectClose(RunOne(Node("ReduceMean"),
                     {Rounded(DType::kFloat16, {4}, {6e4, 6e4, 6e4, 6e4})}),
              {ToDoubles(Rounded(DType::kFloat16, {1}, {6e4}))[0]}, {});
  // Nothing to reduce.
  const Value none = Of<float>({2, 0}, {});
  ExpectClose(RunOne(Node("ReduceSum"), {none, Int64s({1})}), {0, 0}, {});
  ExpectClose(RunOne(Node("ReduceMean"), {none, Int64s({1})}), {NAN, NAN}, {});
  ExpectClose(RunOne(Node("ReduceMax"), {none, Int64s({1})}),
              {-INFINITY, -INFINITY}, {});
  ExpectEqual(RunOne(Node("ReduceMin"), {Of<int8_t>({0}, {}), Int64s({0})}),
              Of<int8_t>({1}, {127}));
  ExpectEqual(RunOne(Node("ReduceSum"), {none, Int64s({0})}),
              Of<float>({1, 0}, {}));
  constexpr int64_t kHuge = int64_t{1} << 62;
  const Value wide = Of<float>({kHuge, kHuge, 0}, {});
  ExpectClose(RunOne(Node("ReduceSum"), {wide}), {0}, {});
  const Value apart = Of<float>({kHuge, 2, kHuge, 0}, {});
  ExpectClose(RunOne(Node("ReduceMax"), {apart, Int64s({0, 2, 3})}),
              {-INFINITY, -INFINITY}, {});
}

TEST(ReductionShapeTest, MergesWhatGoesAndWhatStays) {
  ReductionShape shape =
      ReductionShapeOf({2, 3, 4, 5}, {false, false, true, true});
  EXPECT_EQ(shape.kept.dims, Dims({6}));
  EXPECT_EQ(shape.kept.strides[0], Dims({20}));
  EXPECT_EQ(shape.reduced.dims, Dims({20}));
  EXPECT_EQ(shape.reduced.strides[0], Dims({1}));
  EXPECT_EQ(shape.outputs, 6);
  EXPECT_EQ(shape.count, 20);
  EXPECT_TRUE(shape.inner_reduced);
  shape = ReductionShapeOf({2, 3, 1, 5, 1}, {true, false, false, true, false});
  EXPECT_EQ(shape.kept.dims, Dims({3}));
  EXPECT_EQ(shape.kept.strides[0], Dims({5}));
  EXPECT_EQ(shape.reduced.dims, Dims({2, 5}));
  EXPECT_EQ(shape.reduced.strides[0], Dims({15, 1}));
  EXPECT_TRUE(shape.inner_reduced);
  shape = ReductionShapeOf({2, 3}, {true, false});
  EXPECT_FALSE(shape.inner_reduced);
  EXPECT_EQ(shape.kept.dims, Dims({3}));
  shape = ReductionShapeOf({}, {});
  EXPECT_EQ(shape.outputs, 1);
  EXPECT_EQ(shape.count, 1);
  EXPECT_EQ(shape.kept.dims.size(), 1u);
  EXPECT_EQ(shape.reduced.dims.size(), 1u);
  constexpr int64_t kHuge = int64_t{1} << 40;
  shape = ReductionShapeOf({0, kHuge, kHuge}, {true, false, false});
  EXPECT_EQ(shape.outputs, kSaturated);
  EXPECT_EQ(shape.count, 0);
  shape = ReductionShapeOf({kHuge, 0, kHuge}, {true, false, true});
  EXPECT_EQ(shape.outputs, 0);
  EXPECT_EQ(shape.count, kSaturated);
}

TEST_P(ReductionTest, ArgMax) {
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kNumericTypes.Has(*dtype)) continue;
    SCOPED_TRACE(DTypeName(*dtype));
    const Value x = Rounded(*dtype, {2, 3}, {1, 5, 5, 7, 2, 7});
    const auto run =
        [&](std::vector<std::pair<std::string, AttributeValue>> attributes) {
          return RunOne(Node("ArgMax", Attrs(std::move(attributes))), {x});
        };
    ExpectEqual(run({}), Of<int64_t>({1, 3}, {1, 0, 1}));
    ExpectEqual(run({{"axis", int64_t{-1}}}), Of<int64_t>({2, 1}, {1, 0}));
    ExpectEqual(run({{"axis", int64_t{1}}, {"keepdims", int64_t{0}}}),
                Of<int64_t>({2}, {1, 0}));
    ExpectEqual(run({{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}}),
                Of<int64_t>({2, 1}, {2, 2}));
  }
  ExpectEqual(RunOne(Node("ArgMax"), {Of<float>({4}, {1, NAN, INFINITY, NAN})}),
              Of<int64_t>({1}, {1}));
  ExpectEqual(RunOne(Node("ArgMax", Attrs({{"select_last_index", int64_t{1}}})),
                     {Of<float>({4}, {1, NAN, INFINITY, NAN})}),
              Of<int64_t>({1}, {3}));
  EXPECT_FALSE(Run(Node("ArgMax"), {Of<float>({0, 2}, {})}).ok());
  const Value big =
      Rounded(DType::kFloat, {300, 40, 20}, Spread(300 * 40 * 20, -1, 1, 5));
  const std::vector<std::vector<double>> groups = Groups(big, {1});
  std::vector<int64_t> expected;
  for (const std::vector<double>& group : groups) {
    expected.push_back(std::max_element(group.begin(), group.end()) -
                       group.begin());
  }
  ExpectEqual(RunOne(Node("ArgMax", Attrs({{"axis", int64_t{1}}})), {big}),
              Of<int64_t>({300, 1, 20}, expected));
}

// Long enough for CUDA to find it in two steps, one element after the other and
// several apart.
TEST_P(ReductionTest, ArgMaxOfLongAxes) {
  const auto find = [&](const Value& x, int64_t last) {
    return RunOne(Node("ArgMax", Attrs({{"select_last_index", last}})), {x});
  };
  for (const DType dtype : {DType::kFloat, DType::kDouble, DType::kFloat16,
                            DType::kUint8, DType::kInt64}) {
    SCOPED_TRACE(DTypeName(dtype));
    constexpr int64_t kLong = 200'000, kApart = 70'001;
    const double largest = IsFloating(dtype) ? NAN : 251;
    std::vector<double> values = Spread(kLong, 0, 100, 6);
    const auto expect_row = [&](int64_t first, int64_t last) {
      const Value x = Rounded(dtype, {kLong}, values);
      ExpectEqual(find(x, 0), Of<int64_t>({1}, {first}));
      ExpectEqual(find(x, 1), Of<int64_t>({1}, {last}));
    };
    values[61'234] = values[123'456] = values[123'457] = 250;
    expect_row(61'234, 123'457);
    values[99'999] = values[150'000] = largest;
    expect_row(99'999, 150'000);
    values.assign(kLong, 7);
    expect_row(0, kLong - 1);
    // Two columns.
    values = Spread(2 * kApart, 0, 100, 7);
    for (const size_t row : {300u, 40'000u, 69'999u}) values[2 * row] = 250;
    for (const size_t row : {5'000u, 50'000u}) values[2 * row + 1] = largest;
    const Value x = Rounded(dtype, {kApart, 2}, values);
    ExpectEqual(find(x, 0), Of<int64_t>({1, 2}, {300, 5'000}));
    ExpectEqual(find(x, 1), Of<int64_t>({1, 2}, {69'999, 50'000}));
  }
}

// On CUDA a block has several of them.
TEST_P(ReductionTest, MoreOutputsThanAGridHasBlocks) {
  constexpr size_t kRows = 1'050'000, kColumns = 64;
  std::vector<uint8_t> values(kRows * kColumns, 3), greatest(kRows);
  for (size_t row = 0; row < kRows; ++row) {
    greatest[row] = static_cast<uint8_t>(4 + row % 251);
    values[row * kColumns + row % kColumns] = greatest[row];
  }
  ExpectEqual(RunOne(Node("ReduceMax"),
                     {Of<uint8_t>({kRows, kColumns}, values), Int64s({1})}),
              Of<uint8_t>({kRows, 1}, greatest));
}

TEST(ReductionInferTest, Symbols) {
  NodeInfo node = Node("ReduceSum");
  node.input_types = {DType::kFloat, DType::kInt64};
  const SymbolicShape x = SymbolicDims{Dim::Symbol(0), 3, 4};
  EXPECT_EQ(
      InferShapes(node, {x, SymbolicDims{1}}, {{}, std::vector<int64_t>{1}})
          ->at(0),
      "float[s0,1,4]");
  EXPECT_EQ(InferShapes(node, {x, SymbolicDims{1}})->at(0), "float[?,?,?]");
  node.input_types = {DType::kFloat};
  node.attributes = Attrs({{"keepdims", int64_t{0}}});
  EXPECT_EQ(InferShapes(node, {x})->at(0), "float[]");
}

}  // namespace
}  // namespace weir
