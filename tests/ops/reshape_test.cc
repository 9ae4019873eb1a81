#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(ReshapeTest);

Value Ramp(Dims dims) {
  std::vector<double> values(static_cast<size_t>(NumElements(dims).value()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  return Rounded(DType::kFloat, std::move(dims), values);
}

Value WithDims(Value value, Dims dims) {
  value.dims = std::move(dims);
  return value;
}

TEST_P(ReshapeTest, ReshapeRules) {
  const Value x = Ramp({2, 3, 4});
  const auto reshape = [&](std::vector<int64_t> shape) {
    return RunOne(Node("Reshape"), {x, Int64s(shape)});
  };
  ExpectEqual(reshape({24}), WithDims(x, {24}));
  ExpectEqual(reshape({0, -1}), WithDims(x, {2, 12}));
  ExpectEqual(reshape({-1, 0, 2, 2}), WithDims(x, {2, 3, 2, 2}));
  const Value empty = Of<float>({0, 3}, {});
  ExpectEqual(RunOne(Node("Reshape", Attrs({{"allowzero", int64_t{1}}})),
                     {empty, Int64s({3, 0})}),
              Of<float>({3, 0}, {}));
  // Empty in any order, though a part of the product has no number.
  constexpr int64_t kHuge = int64_t{1} << 62;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{kHuge, 4, 0}, {0, kHuge, 4}, {kHuge, 0, 4}}) {
    ExpectEqual(RunOne(Node("Reshape", Attrs({{"allowzero", int64_t{1}}})),
                       {Of<float>({0}, {}), Int64s(shape)}),
                Of<float>(Dims(shape.begin(), shape.end()), {}));
  }
  for (const Dims& dims : {Dims{kHuge, kHuge, 0}, Dims{0, kHuge, kHuge}}) {
    ExpectEqual(RunOne(Node("Reshape"), {Of<float>(dims, {}), Int64s({-1, 5})}),
                Of<float>({0, 5}, {}));
  }
  ExpectEqual(RunOne(Node("Reshape"), {Of<float>({1}, {5}), Int64s({})}),
              Of<float>({}, {5}));
}

TEST_P(ReshapeTest, ReshapeRefuses) {
  const Value x = Ramp({2, 3, 4});
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{25},
                                         {-1, -1},
                                         {-2, 12},
                                         {5, -1},
                                         {2, 3, 4, 0},
                                         {int64_t{1} << 62, 4, -1}}) {
    const auto result = Run(Node("Reshape"), {x, Int64s(shape)});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument)
        << DimsString(shape);
  }
  EXPECT_THAT(
      std::string(
          Run(Node("Reshape"), {x, Int64s({5, -1})}).status().message()),
      ::testing::HasSubstr("shape [2,3,4] cannot become [5,-1]"));
  // -1 could be anything.
  EXPECT_FALSE(
      Run(Node("Reshape"), {Of<float>({0, 3}, {}), Int64s({0, -1})}).ok());
}

TEST_P(ReshapeTest, Flatten) {
  const Value x = Ramp({2, 3, 4});
  const auto flatten = [&](int64_t axis) {
    return RunOne(Node("Flatten", Attrs({{"axis", axis}})), {x});
  };
  ExpectEqual(RunOne(Node("Flatten"), {x}), WithDims(x, {2, 12}));
  ExpectEqual(flatten(0), WithDims(x, {1, 24}));
  ExpectEqual(flatten(3), WithDims(x, {24, 1}));
  ExpectEqual(flatten(-1), WithDims(x, {6, 4}));
  EXPECT_FALSE(Run(Node("Flatten", Attrs({{"axis", int64_t{4}}})), {x}).ok());
}

TEST_P(ReshapeTest, SqueezeAndUnsqueezeByInputAndByAttribute) {
  const Value x = Ramp({1, 3, 1, 2});
  ExpectEqual(RunOne(Node("Squeeze"), {x}), WithDims(x, {3, 2}));
  ExpectEqual(RunOne(Node("Squeeze"), {x, Int64s({-2})}),
              WithDims(x, {1, 3, 2}));
  ExpectEqual(
      RunOne(Node("Squeeze", Attrs({{"axes", std::vector<int64_t>{0}}}), 11),
             {x}),
      WithDims(x, {3, 1, 2}));
  EXPECT_FALSE(Run(Node("Squeeze"), {x, Int64s({1})}).ok());
  EXPECT_FALSE(Run(Node("Squeeze"), {x, Int64s({0, -4})}).ok());

  const Value y = Ramp({3, 2});
  ExpectEqual(RunOne(Node("Unsqueeze"), {y, Int64s({-1, 0})}),
              WithDims(y, {1, 3, 2, 1}));
  ExpectEqual(
      RunOne(Node("Unsqueeze", Attrs({{"axes", std::vector<int64_t>{1}}}), 11),
             {y}),
      WithDims(y, {3, 1, 2}));
  EXPECT_FALSE(Run(Node("Unsqueeze"), {y, Int64s({3})}).ok());
  EXPECT_FALSE(Run(Node("Unsqueeze"), {y}).ok());
  EXPECT_FALSE(Run(Node("Unsqueeze"), {y, Int64s({0, 1, 2, 3, 4, 5, 6})}).ok());
}

TEST(ReshapeInferTest, SymbolsCancel) {
  NodeInfo node = Node("Reshape");
  node.input_types = {DType::kFloat, DType::kInt64};
  const Dim n = Dim::Symbol(0);
  const Dim m = Dim::Symbol(1);
  using Ints = std::vector<int64_t>;
  const auto infer = [&](SymbolicShape data, std::optional<Ints> shape,
                         int64_t length) -> std::string {
    const auto result =
        InferShapes(node, {data, SymbolicDims{length}}, {std::nullopt, shape});
    return result.ok() ? result->at(0) : std::string("refused");
  };
  EXPECT_EQ(infer(SymbolicDims{n, 3, 4}, Ints{0, -1}, 2), "float[s0,12]");
  EXPECT_EQ(infer(SymbolicDims{n, 3, 4}, Ints{-1, 12}, 2), "float[s0,12]");
  EXPECT_EQ(infer(SymbolicDims{n, 3, 4}, Ints{-1, 6}, 2), "float[?,6]");
  EXPECT_EQ(infer(SymbolicDims{n, m, 4}, Ints{0, 0, 2, -1}, 4),
            "float[s0,s1,2,2]");
  EXPECT_EQ(infer(SymbolicDims{n, 4}, Ints{0, 3, -1}, 3), "refused");
  EXPECT_EQ(infer(SymbolicDims{n, 4}, std::nullopt, 3), "float[?,?,?]");
  EXPECT_EQ(infer(std::nullopt, Ints{7, 0, -1}, 3), "float[7,?,?]");
}

TEST(ReshapeInferTest, SqueezeOfUnknownDims) {
  NodeInfo node = Node("Squeeze");
  node.input_types = {DType::kFloat};
  EXPECT_EQ(InferShapes(node, {SymbolicDims{Dim::Symbol(0), 1}})->at(0),
            "float[...]");
  node.input_types = {DType::kFloat, DType::kInt64};
  EXPECT_EQ(
      InferShapes(node, {SymbolicDims{Dim::Symbol(0), 1}, SymbolicDims{1}},
                  {std::nullopt, std::vector<int64_t>{1}})
          ->at(0),
      "float[s0]");
  EXPECT_EQ(
      InferShapes(node, {SymbolicDims{Dim::Symbol(0), 1}, SymbolicDims{1}})
          ->at(0),
      "float[?]");
}

}  // namespace
}  // namespace weir
