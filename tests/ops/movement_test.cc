// Transpose, Expand, Slice, Pad, Concat, Split: bytes are moved, so results are
// equal to the reference, which finds each element by its index.
#include "kernels/ops/movement.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/base/saturating.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

WEIR_OP_TEST(MovementTest);

int64_t Count(const Dims& dims) { return NumElements(dims).value(); }

Value Ramp(DType dtype, Dims dims) {
  std::vector<double> values(static_cast<size_t>(Count(dims)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(i % 119);
  }
  return Rounded(dtype, std::move(dims), values);
}

Value Strided(const Value& x, const Dims& dims, const Dims& strides,
              int64_t offset) {
  const std::vector<double> in = ToDoubles(x);
  std::vector<double> out;
  for (int64_t i = 0; i < Count(dims); ++i) {
    int64_t rest = i;
    int64_t at = offset;
    for (size_t d = dims.size(); d-- > 0;) {
      at += rest % dims[d] * strides[d];
      rest /= dims[d];
    }
    out.push_back(in[static_cast<size_t>(at)]);
  }
  return Rounded(x.dtype, dims, out);
}

void CheckTranspose(const std::function<Value(const NodeInfo&, Value)>& run,
                    const Value& x, const std::vector<int64_t>& perm) {
  SCOPED_TRACE(DimsString(x.dims) + " by " + DimsString(perm));
  const Dims dense = DenseStrides(x.dims);
  Dims dims;
  Dims strides;
  for (int64_t axis : perm) {
    dims.push_back(x.dims[static_cast<size_t>(axis)]);
    strides.push_back(dense[static_cast<size_t>(axis)]);
  }
  ExpectEqual(run(Node("Transpose", Attrs({{"perm", perm}})), x),
              Strided(x, dims, strides, 0));
}

TEST_P(MovementTest, TransposeEveryPermutation) {
  const auto run = [&](const NodeInfo& node, Value x) {
    return RunOne(node, {std::move(x)});
  };
  for (DType dtype : {DType::kUint8, DType::kFloat16, DType::kFloat,
                      DType::kDouble, DType::kBool}) {
    std::vector<int64_t> perm = {0, 1, 2, 3};
    do {
      CheckTranspose(run, Ramp(dtype, {2, 3, 1, 5}), perm);
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
  CheckTranspose(run, Ramp(DType::kFloat, {301, 257}), {1, 0});
  CheckTranspose(run, Ramp(DType::kUint8, {2, 100, 90, 3}), {0, 3, 1, 2});
  CheckTranspose(run, Ramp(DType::kUint8, {2, 3, 100, 90}), {0, 2, 3, 1});
  CheckTranspose(run, Ramp(DType::kInt64, {64, 33, 65}), {2, 1, 0});
  // In parts of a band, and of a row.
  CheckTranspose(run, Ramp(DType::kFloat, {70'001, 2}), {1, 0});
  CheckTranspose(run, Ramp(DType::kDouble, {2, 40'001, 3}), {0, 2, 1});
  CheckTranspose(run, Ramp(DType::kFloat, {2, 3, 70'001}), {1, 0, 2});
  CheckTranspose(run, Ramp(DType::kFloat, {0, 3}), {1, 0});
  CheckTranspose(run, Ramp(DType::kFloat, {2, 2, 2, 2, 2, 2, 2, 2}),
                 {7, 5, 6, 0, 1, 4, 2, 3});
  const Value x = Ramp(DType::kFloat, {2, 3, 4});
  ExpectEqual(RunOne(Node("Transpose"), {x}),
              Strided(x, {4, 3, 2}, {1, 4, 12}, 0));
  ExpectEqual(RunOne(Node("Transpose"), {Of<float>({}, {3})}),
              Of<float>({}, {3}));
}

TEST_P(MovementTest, TransposeRefusesWhatIsNoPermutation) {
  for (const std::vector<int64_t>& perm : std::vector<std::vector<int64_t>>{
           {0}, {0, 0}, {0, 2}, {-1, 0}, {0, 1, 2}}) {
    EXPECT_EQ(Run(Node("Transpose", Attrs({{"perm", perm}})),
                  {Ramp(DType::kFloat, {2, 3})})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(MovementTest, Expand) {
  const Value x = Ramp(DType::kInt16, {3, 1});
  ExpectEqual(RunOne(Node("Expand"), {x, Int64s({2, 1, 4})}),
              Strided(x, {2, 3, 4}, {0, 1, 0}, 0));
  ExpectEqual(RunOne(Node("Expand"), {x, Int64s({1})}), x);
  ExpectEqual(RunOne(Node("Expand"), {Of<float>({}, {7}), Int64s({3})}),
              Of<float>({3}, {7, 7, 7}));
  ExpectEqual(RunOne(Node("Expand"), {x, Int64s({3, 0})}),
              Of<int16_t>({3, 0}, {}));
  EXPECT_FALSE(Run(Node("Expand"), {x, Int64s({2, 2})}).ok());
  EXPECT_FALSE(Run(Node("Expand"), {x, Int64s({3, -1})}).ok());
}

// ONNX's rules, which differ from NumPy's in the last case: NumPy would keep
// nothing.
TEST_P(MovementTest, SliceOfOneAxis) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const Value x = Ramp(DType::kFloat, {10, 4});
  const struct {
    int64_t start, end, step, first, count;
  } cases[] = {
      {0, 10, 1, 0, 10},     {2, 7, 1, 2, 5},      {2, 7, 2, 2, 3},
      {-3, kMax, 1, 7, 3},   {0, -1, 1, 0, 9},     {-100, 100, 3, 0, 4},
      {7, 3, 1, 0, 0},       {9, kMin, -1, 9, 10}, {kMax, kMin, -1, 9, 10},
      {8, 2, -2, 8, 3},      {-1, -11, -3, 9, 4},  {3, 3, 1, 0, 0},
      {2, 9, kMax, 2, 1},    {5, 0, kMin, 5, 1},   {-1, -100, -4, 9, 3},
      {-12, kMin, -1, 0, 1},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(DimsString({c.start, c.end, c.step}));
    const int64_t stride = c.count > 1 ? 4 * c.step : 0;
    ExpectEqual(RunOne(Node("Slice"), {x, Int64s({c.start}), Int64s({c.end}),
                                       Int64s({0}), Int64s({c.step})}),
                Strided(x, {c.count, 4}, {stride, 1}, 4 * c.first));
  }
}

TEST_P(MovementTest, SliceOfSeveralAxesAndTypes) {
  for (DType dtype :
       {DType::kBool, DType::kBfloat16, DType::kInt32, DType::kUint64}) {
    const Value x = Ramp(dtype, {4, 5, 6});
    ExpectEqual(RunOne(Node("Slice"), {x, Int64s({5, 1}), Int64s({0, 3}),
                                       Int64s({-1, 0}), Int64s({-2, 1})}),
                Strided(x, {2, 5, 3}, {30, 6, -2}, 35));
    // Without axes and steps; int32 positions.
    ExpectEqual(RunOne(Node("Slice"), {x, Of<int32_t>({2}, {1, 2}),
                                       Of<int32_t>({2}, {3, 99})}),
                Strided(x, {2, 3, 6}, {30, 6, 1}, 42));
  }
  const Value big = Ramp(DType::kFloat, {1000, 300});
  ExpectEqual(
      RunOne(Node("Slice"), {big, Int64s({-1, -1}), Int64s({-2000, -2000}),
                             Int64s({0, 1}), Int64s({-1, -1})}),
      Strided(big, {1000, 300}, {-300, -1}, 299999));
}

TEST_P(MovementTest, SliceRefuses) {
  const Value x = Ramp(DType::kFloat, {3, 3});
  EXPECT_FALSE(Run(Node("Slice"),
                   {x, Int64s({0}), Int64s({1}), Int64s({0}), Int64s({0})})
                   .ok());
  EXPECT_FALSE(
      Run(Node("Slice"), {x, Int64s({0}), Int64s({1}), Int64s({2})}).ok());
  EXPECT_FALSE(
      Run(Node("Slice"), {x, Int64s({0, 0}), Int64s({1, 1}), Int64s({0, -2})})
          .ok());
  EXPECT_FALSE(Run(Node("Slice"), {x, Int64s({0, 0}), Int64s({1})}).ok());
}

// -- Pad ----------------------------------------------------------------------

int64_t Mapped(const std::string& mode, int64_t p, int64_t n) {
  if (p >= 0 && p < n) return p;
  if (mode == "constant") return -1;
  if (mode == "edge") return p < 0 ? 0 : n - 1;
  if (mode == "wrap") return ((p % n) + n) % n;
  while (p < 0 || p >= n) {  // reflect
    if (n == 1) return 0;
    p = p < 0 ? -p : 2 * (n - 1) - p;
  }
  return p;
}

Value PadReference(const Value& x, const std::vector<int64_t>& pads,
                   const std::string& mode, double fill) {
  const size_t rank = x.dims.size();
  Dims dims;
  for (size_t d = 0; d < rank; ++d) {
    dims.push_back(x.dims[d] + pads[d] + pads[d + rank]);
  }
  const Dims dense = DenseStrides(x.dims);
  const std::vector<double> in = ToDoubles(x);
  std::vector<double> out;
  for (int64_t i = 0; i < Count(dims); ++i) {
    int64_t rest = i;
    int64_t at = 0;
    bool outside = false;
    for (size_t d = rank; d-- > 0;) {
      const int64_t p = Mapped(mode, rest % dims[d] - pads[d], x.dims[d]);
      outside |= p < 0;
      at += p * dense[d];
      rest /= dims[d];
    }
    out.push_back(outside ? fill : in[static_cast<size_t>(at)]);
  }
  return Rounded(x.dtype, dims, out);
}

TEST_P(MovementTest, PadInEveryMode) {
  for (const std::string mode : {"constant", "reflect", "edge", "wrap"}) {
    const NodeInfo node = Node("Pad", Attrs({{"mode", mode}}));
    for (const std::vector<int64_t>& pads :
         std::vector<std::vector<int64_t>>{{0, 0, 0, 0, 0, 0},
                                           {1, 2, 3, 3, 2, 1},
                                           {0, 0, 11, 0, 0, 9},
                                           {0, -1, -2, 1, 0, -1},
                                           {5, -3, 2, 0, 2, -4}}) {
      SCOPED_TRACE(mode + DimsString(pads));
      for (DType dtype : {DType::kUint8, DType::kFloat16, DType::kFloat,
                          DType::kInt64, DType::kBool}) {
        const Value x = Ramp(dtype, {2, 3, 5});
        ExpectEqual(RunOne(node, {x, Int64s(pads)}),
                    PadReference(x, pads, mode, 0));
      }
    }
  }
  const Value x = Ramp(DType::kFloat, {3});
  ExpectEqual(RunOne(Node("Pad"), {x, Int64s({1, 2}), Of<float>({}, {9})}),
              Of<float>({6}, {9, 0, 1, 2, 9, 9}));
  const Value big = Ramp(DType::kFloat, {30, 100, 100});
  ExpectEqual(RunOne(Node("Pad", Attrs({{"mode", std::string("reflect")}})),
                     {big, Int64s({0, 1, 2, 0, 3, 4})}),
              PadReference(big, {0, 1, 2, 0, 3, 4}, "reflect", 0));
}

TEST_P(MovementTest, PadLongRowsInEveryMode) {
  const Value x = Ramp(DType::kFloat, {2, 50'000});
  const Value point = Ramp(DType::kFloat, {1});
  for (const std::string mode : {"constant", "reflect", "edge", "wrap"}) {
    const NodeInfo node = Node("Pad", Attrs({{"mode", mode}}));
    for (const std::vector<int64_t>& pads :
         std::vector<std::vector<int64_t>>{{0, 120'001, 0, 170'003},
                                           {1, -20'000, 0, 90'000},
                                           {0, 90'000, 0, -49'999},
                                           {0, -50'000, 0, 50'000}}) {
      SCOPED_TRACE(mode + DimsString(pads));
      ExpectEqual(RunOne(node, {x, Int64s(pads)}),
                  PadReference(x, pads, mode, 0));
    }
    ExpectEqual(RunOne(node, {point, Int64s({3, 70'000})}),
                PadReference(point, {3, 70'000}, mode, 0));
  }
}

TEST_P(MovementTest, PadWithAxes) {
  const Value x = Ramp(DType::kFloat, {2, 3});
  ExpectEqual(RunOne(Node("Pad"),
                     {x, Int64s({1, 2}), Of<float>({}, {5}), Int64s({-1})}),
              PadReference(x, {0, 1, 0, 2}, "constant", 5));
  ExpectEqual(RunOne(Node("Pad"), {x, Int64s({1, 2, 3, 4}), Value(),
                                   Of<int32_t>({2}, {1, 0})}),
              PadReference(x, {2, 1, 4, 3}, "constant", 0));
}

TEST_P(MovementTest, PadRefuses) {
  const Value x = Ramp(DType::kFloat, {2, 3});
  EXPECT_FALSE(Run(Node("Pad"), {x, Int64s({1, 2})}).ok());
  EXPECT_FALSE(Run(Node("Pad"), {x, Int64s({-2, 0, -1, 0})}).ok());
  EXPECT_FALSE(
      Run(Node("Pad"), {x, Int64s({0, INT64_MAX, 0, INT64_MAX})}).ok());
  EXPECT_FALSE(Run(Node("Pad"), {x, Int64s({0, 0, 0, INT64_MIN})}).ok());
  EXPECT_FALSE(Run(Node("Pad", Attrs({{"mode", std::string("edge")}})),
                   {Of<float>({0}, {}), Int64s({1, 0})})
                   .ok());
  EXPECT_FALSE(Run(Node("Pad", Attrs({{"mode", std::string("mirror")}})),
                   {x, Int64s({0, 0, 0, 0})})
                   .ok());
}

// -- Concat, Split ------------------------------------------------------------

TEST_P(MovementTest, ConcatAndSplitAreInverse) {
  for (DType dtype :
       {DType::kBool, DType::kFloat16, DType::kFloat, DType::kInt64}) {
    for (int64_t axis : {0, 1, 2, -1}) {
      SCOPED_TRACE(axis);
      const Value x = Ramp(dtype, {7, 7, 7});
      NodeInfo split = Node("Split", Attrs({{"axis", axis}}));
      split.num_outputs = 4;
      const auto parts = Run(split, {x, Int64s({1, 3, 0, 3})});
      ASSERT_TRUE(parts.ok()) << parts.status();
      Dims expected = {7, 7, 7};
      expected[static_cast<size_t>(axis < 0 ? axis + 3 : axis)] = 3;
      EXPECT_EQ(DimsString(parts->at(1).dims), DimsString(expected));
      ExpectEqual(RunOne(Node("Concat", Attrs({{"axis", axis}})), *parts), x);
    }
  }
  ExpectEqual(RunOne(Node("Concat", Attrs({{"axis", int64_t{0}}})),
                     {Of<float>({2}, {1, 2}), Of<float>({1}, {3})}),
              Of<float>({3}, {1, 2, 3}));
}

// More than one launch of a GPU takes, some of them empty.
TEST_P(MovementTest, ConcatAndSplitOfManyOperands) {
  std::vector<int64_t> widths;
  int64_t columns = 0;
  for (int64_t i = 0; i < 1300; ++i) {
    widths.push_back(i % 6);
    columns += i % 6;
  }
  for (DType dtype : {DType::kUint8, DType::kFloat}) {
    const Value x = Ramp(dtype, {3, columns});
    NodeInfo split =
        Node("Split", Attrs({{"axis", int64_t{1}}, {"split", widths}}));
    split.num_outputs = static_cast<int>(widths.size());
    const auto parts = Run(split, {x});
    ASSERT_TRUE(parts.ok()) << parts.status();
    ExpectEqual(RunOne(Node("Concat", Attrs({{"axis", int64_t{1}}})), *parts),
                x);
    // The same operand again and again.
    const Value twice = Ramp(dtype, {2, 5});
    const Value many = RunOne(Node("Concat", Attrs({{"axis", int64_t{0}}})),
                              std::vector<Value>(700, twice));
    ASSERT_EQ(DimsString(many.dims), DimsString({1400, 5}));
    EXPECT_TRUE(std::equal(
        twice.bytes.begin(), twice.bytes.end(),
        many.bytes.end() - static_cast<ptrdiff_t>(twice.bytes.size())));
  }
}

TEST(SideBySideTest, CountsNoFurtherThan63Bits) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const auto found = [](int64_t axis, std::vector<Dims> dims) {
    std::vector<TensorMeta> metas(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      metas[i].dtype = DType::kFloat;
      metas[i].dims = dims[i];
    }
    return *SideBySideOf(Node("Concat", Attrs({{"axis", axis}})), metas[0],
                         absl::MakeConstSpan(metas).subspan(1));
  };
  SideBySide parts = found(1, {{2, 3, 5, 4}, {2, 1, 5, 4}, {2, 2, 5, 4}});
  EXPECT_EQ(parts.rows, 2);
  EXPECT_EQ(parts.pitch, 4 * 60);
  EXPECT_EQ(parts.widths, std::vector<int64_t>({4 * 20, 4 * 40}));
  EXPECT_FALSE(parts.empty());
  parts = found(
      1, {{0, 2, kHuge, kHuge}, {0, 1, kHuge, kHuge}, {0, 1, kHuge, kHuge}});
  EXPECT_EQ(parts.rows, 0);
  EXPECT_EQ(parts.pitch, kSaturated);
  EXPECT_EQ(parts.widths, std::vector<int64_t>({kSaturated, kSaturated}));
  EXPECT_TRUE(parts.empty());
  parts = found(2, {{kHuge, kHuge, 2, 0}, {kHuge, kHuge, 2, 0}});
  EXPECT_EQ(parts.rows, kSaturated);
  EXPECT_TRUE(parts.empty());
}

// Beside an axis of zero the others may have any product.
TEST_P(MovementTest, NothingIsMovedAtOnce) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  for (const Dims& dims :
       {Dims{0, kHuge, kHuge, 32, 32}, Dims{kHuge, kHuge, 32, 32, 0}}) {
    const Value x = Of<float>(dims, {});
    const Dims back(dims.rbegin(), dims.rend());
    EXPECT_EQ(RunOne(Node("Transpose"), {x}).dims, back);
    EXPECT_EQ(RunOne(Node("Expand"), {x, Int64s({1})}).dims, dims);
    EXPECT_EQ(
        RunOne(Node("Pad"), {x, Int64s(std::vector<int64_t>(10, 0))}).dims,
        dims);
    Dims half = dims, more = dims;
    half[1] /= 2;
    more[1] = kHuge + kHuge / 2;
    EXPECT_EQ(RunOne(Node("Slice"),
                     {x, Int64s({kHuge / 2}), Int64s({kHuge}), Int64s({1})})
                  .dims,
              half);
    for (const int64_t axis : {1, 3}) {
      NodeInfo split =
          Node("Split", Attrs({{"axis", axis}, {"num_outputs", int64_t{2}}}));
      split.num_outputs = 2;
      const auto parts = Run(split, {x});
      ASSERT_TRUE(parts.ok()) << parts.status();
      EXPECT_EQ(RunOne(Node("Concat", Attrs({{"axis", axis}})), *parts).dims,
                dims);
    }
    EXPECT_EQ(RunOne(Node("Concat", Attrs({{"axis", int64_t{1}}})),
                     {x, Of<float>(half, {})})
                  .dims,
              more);
  }
}

TEST_P(MovementTest, SplitIntoEqualParts) {
  const Value x = Ramp(DType::kFloat, {2, 7});
  const auto widths = [&](Attributes attributes, int outputs, int opset = 21) {
    attributes.Set("axis", int64_t{1});
    NodeInfo node = Node("Split", std::move(attributes), opset);
    node.num_outputs = outputs;
    std::vector<int64_t> result;
    const auto parts = Run(node, {x});
    if (!parts.ok()) return result;
    for (const Value& part : *parts) result.push_back(part.dims[1]);
    return result;
  };
  using Ints = std::vector<int64_t>;
  EXPECT_EQ(widths({}, 7, 17), Ints(7, 1));
  EXPECT_EQ(widths({}, 2, 17), Ints());  // uneven
  EXPECT_EQ(widths(Attrs({{"num_outputs", int64_t{2}}}), 2), (Ints{4, 3}));
  EXPECT_EQ(widths(Attrs({{"num_outputs", int64_t{3}}}), 3), (Ints{3, 3, 1}));
  EXPECT_EQ(widths(Attrs({{"num_outputs", int64_t{3}}}), 2), Ints());
  EXPECT_EQ(widths(Attrs({{"split", Ints{5, 2}}}), 2), (Ints{5, 2}));
  EXPECT_EQ(widths(Attrs({{"split", Ints{5, 3}}}), 2), Ints());
  EXPECT_EQ(widths(Attrs({{"split", Ints{8, -1}}}), 2), Ints());
  EXPECT_EQ(widths(Attrs({{"split", Ints{3, 4}}}), 3), Ints());
  // The longest axis there is, of which there is nothing.
  constexpr int64_t kLongest = std::numeric_limits<int64_t>::max();
  NodeInfo node = Node("Split", Attrs({{"num_outputs", int64_t{7}}}));
  node.num_outputs = 7;
  const auto parts = Run(node, {Value{DType::kFloat, {kLongest, 0}, {}}});
  ASSERT_TRUE(parts.ok()) << parts.status();
  for (const Value& part : *parts) EXPECT_EQ(part.dims[0], kLongest / 7);
}

TEST_P(MovementTest, SplitIsToldItsPartsOnce) {
  const Value x = Ramp(DType::kFloat, {6});
  const Value sizes = Int64s({3, 3});
  const auto refused = [&](Attributes attributes, int opset,
                           const std::vector<Value>& inputs) {
    NodeInfo node = Node("Split", std::move(attributes), opset);
    node.num_outputs = 2;
    const absl::Status status = Run(node, inputs).status();
    EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
    return std::string(status.message());
  };
  const Attributes number = Attrs({{"num_outputs", int64_t{2}}});
  const Attributes list = Attrs({{"split", std::vector<int64_t>{3, 3}}});
  Attributes both = list;
  both.Set("num_outputs", int64_t{2});
  EXPECT_EQ(refused(number, 18, {x}), "");
  EXPECT_EQ(refused({}, 18, {x, sizes}), "");
  EXPECT_EQ(refused({}, 17, {x}), "");
  EXPECT_EQ(refused(list, 18, {x}), "");
  for (const std::string& message :
       {refused(number, 18, {x, sizes}), refused(both, 21, {x})}) {
    EXPECT_THAT(message, HasSubstr("\"split\" and attribute \"num_outputs\""));
  }
  EXPECT_THAT(refused(number, 17, {x}),
              HasSubstr("\"num_outputs\" begins with opset 18"));
  EXPECT_THAT(refused({}, 18, {x}),
              HasSubstr("\"split\" or attribute \"num_outputs\""));
}

TEST_P(MovementTest, ConcatRefuses) {
  const NodeInfo node = Node("Concat", Attrs({{"axis", int64_t{1}}}));
  EXPECT_FALSE(
      Run(node, {Ramp(DType::kFloat, {2, 3}), Ramp(DType::kFloat, {3, 3})})
          .ok());
  EXPECT_FALSE(
      Run(node, {Ramp(DType::kFloat, {2, 3}), Ramp(DType::kFloat, {2, 3, 1})})
          .ok());
  EXPECT_FALSE(Run(node, {Ramp(DType::kFloat, {2})}).ok());
}

// -- Inference ----------------------------------------------------------------

// A NaN of each kind, in the words of a type: signaling and quiet, with either
// sign, the payload full and in its last bit alone.
template <typename Word>
Value Nans(DType dtype, Dims dims, int mantissa_bits) {
  const Word sign = static_cast<Word>(Word{1} << (8 * sizeof(Word) - 1));
  const Word infinity =
      static_cast<Word>((sign - 1) & ~((Word{1} << mantissa_bits) - 1));
  const Word most = static_cast<Word>((Word{1} << mantissa_bits) - 1);
  const Word quiet = static_cast<Word>(Word{1} << (mantissa_bits - 1));
  std::vector<Word> words;
  for (const Word payload : {Word{1}, static_cast<Word>(quiet - 1), quiet,
                             static_cast<Word>(quiet | 1), most, Word{2}}) {
    words.push_back(static_cast<Word>(infinity | payload));
    words.push_back(static_cast<Word>(sign | infinity | payload));
  }
  Value value = Of<Word>(dims, words);
  value.dtype = dtype;
  return value;
}

// What only moves an element keeps its bits: no type of a NaN is made another.
TEST_P(MovementTest, BitsOfNansPass) {
  const Dims dims = {3, 4};
  const Value all[] = {Nans<uint16_t>(DType::kFloat16, dims, 10),
                       Nans<uint16_t>(DType::kBfloat16, dims, 7),
                       Nans<uint32_t>(DType::kFloat, dims, 23),
                       Nans<uint64_t>(DType::kDouble, dims, 52)};
  for (const Value& x : all) {
    SCOPED_TRACE(DTypeName(x.dtype));
    const size_t size = SizeOf(x.dtype);
    // Elements of x by their index.
    const auto taken = [&](Dims out_dims, const std::vector<size_t>& from) {
      Value value;
      value.dtype = x.dtype;
      value.dims = std::move(out_dims);
      for (const size_t i : from) {
        const auto at = x.bytes.begin() + static_cast<ptrdiff_t>(i * size);
        value.bytes.insert(value.bytes.end(), at,
                           at + static_cast<ptrdiff_t>(size));
      }
      return value;
    };
    const Value row = taken({4}, {0, 1, 2, 3});
    ExpectEqual(RunOne(Node("Identity"), {x}), x);
    ExpectEqual(RunOne(Node("Clip"), {x}), x);
    ExpectEqual(RunOne(Node("Max"), {x}), x);
    ExpectEqual(RunOne(Node("Min"), {x}), x);
    const auto number = static_cast<int64_t>(x.dtype);
    ExpectEqual(RunOne(Node("Cast", Attrs({{"to", number}})), {x}), x);
    ExpectEqual(RunOne(Node("Where"), {Rounded(DType::kBool, {}, {1}), x, row}),
                x);
    ExpectEqual(RunOne(Node("Where"),
                       {Rounded(DType::kBool, {3, 1}, {1, 0, 1}), row, x}),
                taken(dims, {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3}));
    ExpectEqual(RunOne(Node("Transpose"), {x}),
                taken({4, 3}, {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}));
    ExpectEqual(RunOne(Node("Expand"), {row, Int64s({2, 4})}),
                taken({2, 4}, {0, 1, 2, 3, 0, 1, 2, 3}));
    ExpectEqual(RunOne(Node("Slice"), {x, Int64s({2}), Int64s({0}), Int64s({0}),
                                       Int64s({-1})}),
                taken({2, 4}, {8, 9, 10, 11, 4, 5, 6, 7}));
    ExpectEqual(RunOne(Node("Gather"), {x, Int64s({1})}),
                taken({1, 4}, {4, 5, 6, 7}));
    ExpectEqual(
        RunOne(Node("Concat", Attrs({{"axis", int64_t{0}}})), {row, row}),
        taken({8}, {0, 1, 2, 3, 0, 1, 2, 3}));
    ExpectEqual(RunOne(Node("Pad"), {row, Int64s({1, 0}), taken({}, {7})}),
                taken({5}, {7, 0, 1, 2, 3}));
    ExpectEqual(
        RunOne(Node("Split", Attrs({{"num_outputs", int64_t{1}}})), {row}),
        row);
    const Value picture =
        taken({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    ExpectEqual(RunOne(WeirNode("Crop", Attrs({{"crop_w", 1.0f}})), {picture}),
                taken({2, 1, 2}, {2, 3, 8, 9}));
    ExpectEqual(RunOne(WeirNode("Flip"), {picture}),
                taken({2, 3, 2}, {4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7}));
    if (x.dtype == DType::kFloat) {
      ExpectEqual(
          RunOne(WeirNode("Resize",
                          Attrs({{"resize_x", 3.0f},
                                 {"resize_y", 4.0f},
                                 {"interp_type", std::string("nearest")}})),
                 {picture}),
          taken({4, 3, 2}, {0, 1, 2, 3, 4,  5,  0, 1, 2, 3, 4,  5,
                            6, 7, 8, 9, 10, 11, 6, 7, 8, 9, 10, 11}));
    }
  }
}

TEST(MovementInferTest, Symbols) {
  using Ints = std::vector<int64_t>;
  const Dim n = Dim::Symbol(0);
  NodeInfo slice = Node("Slice");
  slice.input_types = {DType::kFloat, DType::kInt64, DType::kInt64,
                       DType::kInt64};
  const std::vector<SymbolicShape> shapes = {
      SymbolicDims{n, 8}, SymbolicDims{1}, SymbolicDims{1}, SymbolicDims{1}};
  EXPECT_EQ(InferShapes(slice, shapes, {{}, Ints{0}, Ints{INT64_MAX}, Ints{0}})
                ->at(0),
            "float[s0,8]");
  EXPECT_EQ(InferShapes(slice, shapes, {{}, Ints{0}, Ints{2}, Ints{0}})->at(0),
            "float[?,8]");
  EXPECT_EQ(InferShapes(slice, shapes, {{}, Ints{0}, Ints{2}, Ints{1}})->at(0),
            "float[s0,2]");
  EXPECT_EQ(InferShapes(slice, shapes)->at(0), "float[?,?]");

  NodeInfo concat = Node("Concat", Attrs({{"axis", int64_t{1}}}));
  concat.input_types = {DType::kFloat, DType::kFloat};
  EXPECT_EQ(
      InferShapes(concat, {SymbolicDims{n, 3}, SymbolicDims{4, 2}})->at(0),
      "float[4,5]");
  EXPECT_EQ(
      InferShapes(concat, {SymbolicDims{n, 3}, SymbolicDims{n, Dim()}})->at(0),
      "float[s0,?]");

  NodeInfo pad = Node("Pad");
  pad.input_types = {DType::kFloat, DType::kInt64};
  EXPECT_EQ(InferShapes(pad, {SymbolicDims{n, 3}, SymbolicDims{4}},
                        {{}, Ints{0, 1, 0, 1}})
                ->at(0),
            "float[s0,5]");
  EXPECT_EQ(InferShapes(pad, {SymbolicDims{n, 3}, SymbolicDims{4}})->at(0),
            "float[?,?]");

  NodeInfo transpose = Node("Transpose", Attrs({{"perm", Ints{1, 0}}}));
  transpose.input_types = {DType::kFloat};
  EXPECT_EQ(InferShapes(transpose, {SymbolicDims{n, 3}})->at(0), "float[3,s0]");

  NodeInfo expand = Node("Expand");
  expand.input_types = {DType::kFloat, DType::kInt64};
  EXPECT_EQ(InferShapes(expand, {SymbolicDims{n, 1}, SymbolicDims{3}},
                        {{}, Ints{2, 1, 5}})
                ->at(0),
            "float[2,s0,5]");

  NodeInfo split = Node("Split", Attrs({{"num_outputs", int64_t{2}}}));
  split.input_types = {DType::kFloat};
  split.num_outputs = 2;
  EXPECT_EQ(InferShapes(split, {SymbolicDims{n, 3}})->at(1), "float[?,3]");
  // Wrong whatever the axis will be.
  split.num_outputs = 3;
  EXPECT_THAT(InferShapes(split, {SymbolicDims{n, 3}}).status().message(),
              HasSubstr("\"num_outputs\" is 2, and the node has 3 outputs"));
  split.attributes = {};
  split.input_types = {DType::kFloat, DType::kInt64};
  EXPECT_THAT(InferShapes(split, {SymbolicDims{n, 3}, SymbolicDims{2}},
                          {{}, Ints{1, 1}})
                  .status()
                  .message(),
              HasSubstr("2 sizes, and the node has 3 outputs"));
}

}  // namespace
}  // namespace weir
