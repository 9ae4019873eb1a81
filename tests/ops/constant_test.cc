#include "kernels/ops/constant.h"

#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(ConstantTest);

std::shared_ptr<const Constant> MakeConstant(const Value& value) {
  auto owner = std::make_shared<const Value>(value);
  auto constant = std::make_shared<Constant>();
  constant->tensor = {owner->dtype, owner->dims, owner->bytes.data()};
  constant->owner = owner;
  return constant;
}

TEST_P(ConstantTest, EveryNumericAttribute) {
  const auto run = [&](std::string name, AttributeValue value) {
    return RunOne(Node("Constant", Attrs({{name, std::move(value)}})), {});
  };
  ExpectEqual(run("value_int", int64_t{-4}), Of<int64_t>({}, {-4}));
  ExpectEqual(run("value_float", 0.25f), Of<float>({}, {0.25f}));
  ExpectEqual(run("value_ints", std::vector<int64_t>{1, 2}), Int64s({1, 2}));
  ExpectEqual(run("value_ints", std::vector<int64_t>{}), Int64s({}));
  ExpectEqual(run("value_floats", std::vector<float>{1, 2, 3}),
              Of<float>({3}, {1, 2, 3}));
  const Value half = Rounded(DType::kFloat16, {2, 1}, {1, -2});
  ExpectEqual(run("value", MakeConstant(half)), half);
}

TEST(ConstantValueTest, Strings) {
  const auto value = ConstantValue(
      Node("Constant",
           Attrs({{"value_strings", std::vector<std::string>{"a", "bcd"}}})));
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->tensor.dtype, DType::kString);
  EXPECT_EQ(DimsString(value->tensor.dims), "[2]");
  EXPECT_EQ(std::string_view(value->tensor.as<StringRef>()[1]), "bcd");
}

TEST(ConstantValueTest, NeedsExactlyOneAttribute) {
  EXPECT_EQ(ConstantValue(Node("Constant")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ConstantValue(Node("Constant", Attrs({{"value_int", int64_t{1}},
                                                  {"value_float", 1.0f}})))
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(ConstantTest, ConstantOfShapeFills) {
  ExpectEqual(RunOne(Node("ConstantOfShape"), {Int64s({2, 3})}),
              Of<float>({2, 3}, {0, 0, 0, 0, 0, 0}));
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
    SCOPED_TRACE(DTypeName(*dtype));
    const NodeInfo node =
        Node("ConstantOfShape",
             Attrs({{"value", MakeConstant(Rounded(*dtype, {1}, {1}))}}));
    ExpectEqual(RunOne(node, {Int64s({3})}), Rounded(*dtype, {3}, {1, 1, 1}));
    ExpectEqual(RunOne(node, {Int64s({})}), Rounded(*dtype, {}, {1}));
    ExpectEqual(RunOne(node, {Int64s({0, 2})}), Rounded(*dtype, {0, 2}, {}));
  }
}

TEST_P(ConstantTest, ConstantOfShapeRefusesBadShapes) {
  EXPECT_FALSE(Run(Node("ConstantOfShape"), {Int64s({2, -1})}).ok());
  EXPECT_FALSE(
      Run(Node("ConstantOfShape"), {Int64s({1 << 30, 1 << 30, 1 << 30})}).ok());
  EXPECT_FALSE(Run(Node("ConstantOfShape"), {Of<int64_t>({1, 1}, {1})}).ok());
}

TEST(ConstantInferTest, RankFromTheLengthOfTheShape) {
  NodeInfo node = Node("ConstantOfShape");
  node.input_types = {DType::kInt64};
  EXPECT_EQ(InferShapes(node, {SymbolicDims{3}})->at(0), "float[?,?,?]");
  EXPECT_EQ(InferShapes(node, {SymbolicDims{Dim()}})->at(0), "float[...]");
  EXPECT_FALSE(InferShapes(node, {SymbolicDims{99}}).ok());
}

}  // namespace
}  // namespace weir
