#include "kernels/ops/gather.h"

#include <utility>

#include "kernels/base/saturating.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(GatherTest);

NodeInfo Gather(int64_t axis) {
  return Node("Gather", Attrs({{"axis", axis}}));
}

TEST_P(GatherTest, EveryTypeAlongEveryAxis) {
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
    SCOPED_TRACE(DTypeName(*dtype));
    const bool flags = *dtype == DType::kBool;
    const Value x = Rounded(*dtype, {2, 3},
                            flags ? std::vector<double>{0, 1, 1, 0, 0, 1}
                                  : std::vector<double>{1, 2, 3, 4, 5, 6});
    const std::vector<double> in = ToDoubles(x);
    ExpectEqual(RunOne(Gather(0), {x, Int64s({1, -2, 1})}),
                Rounded(*dtype, {3, 3},
                        {in[3], in[4], in[5], in[0], in[1], in[2], in[3], in[4],
                         in[5]}));
    ExpectEqual(RunOne(Gather(-1), {x, Of<int32_t>({1, 2}, {2, -3})}),
                Rounded(*dtype, {2, 1, 2}, {in[2], in[0], in[5], in[3]}));
    ExpectEqual(RunOne(Gather(1), {x, Of<int64_t>({}, {1})}),
                Rounded(*dtype, {2}, {in[1], in[4]}));
  }
}

TEST_P(GatherTest, ManyRows) {
  std::vector<double> data(1000 * 64);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<double>(i);
  std::vector<int64_t> indices;
  std::vector<double> expected;
  for (int64_t i = 0; i < 3000; ++i) {
    const int64_t row = i * 7919 % 1000;
    indices.push_back(i % 2 == 0 ? row : row - 1000);
    for (int64_t k = 0; k < 64; ++k) {
      expected.push_back(static_cast<double>(row * 64 + k));
    }
  }
  ExpectEqual(RunOne(Gather(0), {Rounded(DType::kFloat, {1000, 64}, data),
                                 Int64s(indices)}),
              Rounded(DType::kFloat, {3000, 64}, expected));
}

// Beside an axis of zero the others may have any product.
TEST_P(GatherTest, RowsOfNothingTakeNoTime) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  const Value indices = Int64s({1, 1, 1});
  const auto dims = [&](int64_t axis, Dims data) {
    return RunOne(Gather(axis), {Of<float>(std::move(data), {}), indices}).dims;
  };
  EXPECT_EQ(dims(1, {kHuge, kHuge, 0}), Dims({kHuge, 3, 0}));
  EXPECT_EQ(dims(1, {0, kHuge, kHuge, kHuge}), Dims({0, 3, kHuge, kHuge}));
  EXPECT_EQ(dims(2, {kHuge, kHuge, 5, 0}), Dims({kHuge, kHuge, 3, 0}));
}

TEST(GatherShapeTest, CountsNoFurtherThan63Bits) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  TensorMeta inputs[2];
  PlanArgs args = {};
  args.inputs = inputs;
  inputs[1].elements = 3;
  const auto shape = [&](int64_t axis, Dims dims) {
    inputs[0].dims = std::move(dims);
    return *GatherShapeOf(Gather(axis), args);
  };
  GatherShape found = shape(1, {4, 5, 6, 7});
  EXPECT_EQ(found.blocks, 4);
  EXPECT_EQ(found.axis, 5);
  EXPECT_EQ(found.inner, 42);
  EXPECT_EQ(found.rows(), 12);
  EXPECT_EQ(found.elements(), 504);
  found = shape(0, {0, kHuge, kHuge});
  EXPECT_EQ(found.inner, kSaturated);
  EXPECT_EQ(found.elements(), kSaturated);
  found = shape(2, {kHuge, kHuge, 5, 0, kHuge});
  EXPECT_EQ(found.blocks, kSaturated);
  EXPECT_EQ(found.rows(), kSaturated);
  EXPECT_EQ(found.elements(), 0);
}

TEST_P(GatherTest, AnIndexOutOfRangeIsTheSameErrorEverywhere) {
  const Value x = Of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (int64_t index : {int64_t{2}, int64_t{-3}, INT64_MAX, INT64_MIN}) {
    const auto result = Run(Gather(0), {x, Int64s({0, index, 1})});
    EXPECT_EQ(result.status(), FaultStatus(FaultCode::kIndexOutOfRange));
  }
  EXPECT_FALSE(Run(Gather(0), {Of<float>({0}, {}), Int64s({0})}).ok());
  // No index, or nothing to take, no error.
  ExpectEqual(RunOne(Gather(0), {Of<float>({2, 0}, {}), Int64s({7})}),
              Of<float>({1, 0}, {}));
  ExpectEqual(RunOne(Gather(0), {Of<float>({0}, {}), Int64s({})}),
              Of<float>({0}, {}));
  EXPECT_FALSE(Run(Gather(2), {x, Int64s({0})}).ok());
  EXPECT_FALSE(Run(Gather(0), {Of<float>({}, {1}), Int64s({0})}).ok());
}

TEST_P(GatherTest, StringsOnTheCpu) {
  const std::string texts[] = {"a", "bc", ""};
  std::vector<StringRef> refs;
  for (const std::string& text : texts) {
    refs.push_back({text.data(), text.size()});
  }
  const auto result =
      Run(Gather(0), {Of<StringRef>({3}, refs), Int64s({1, -1})});
  if (on_cuda()) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(result.ok()) << result.status();
  const std::vector<StringRef> out = result->at(0).As<StringRef>();
  EXPECT_EQ(std::string_view(out[0]), "bc");
  EXPECT_EQ(std::string_view(out[1]), "");
}

TEST(GatherInferTest, Symbols) {
  NodeInfo node = Node("Gather", Attrs({{"axis", int64_t{1}}}));
  node.input_types = {DType::kFloat, DType::kInt64};
  EXPECT_EQ(InferShapes(node, {SymbolicDims{Dim::Symbol(0), 5, 6},
                               SymbolicDims{Dim::Symbol(1), 2}})
                ->at(0),
            "float[s0,s1,2,6]");
}

}  // namespace
}  // namespace weir
