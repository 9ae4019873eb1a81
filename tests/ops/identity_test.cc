#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(IdentityTest);

TEST_P(IdentityTest, CopiesEveryType) {
  for (int number = 1; number <= 16; ++number) {
    const auto dtype = DTypeFromOnnx(number);
    if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
    const Value x = Rounded(*dtype, {2, 2}, {0, 1, 1, 0});
    ExpectEqual(RunOne(Node("Identity"), {x}), x);
  }
  const Value big = Rounded(DType::kDouble, {300000}, Spread(300000, -1, 1, 1));
  ExpectEqual(RunOne(Node("Identity"), {big}), big);
  ExpectEqual(RunOne(Node("Identity"), {Of<float>({0, 3}, {})}),
              Of<float>({0, 3}, {}));
}

TEST_P(IdentityTest, StringsOnTheCpu) {
  const std::string text = "weir";
  const Value x = Of<StringRef>({1}, {{text.data(), text.size()}});
  const auto result = Run(Node("Identity"), {x});
  if (on_cuda()) {
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
    return;
  }
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(std::string_view(result->at(0).As<StringRef>()[0]), text);
}

TEST_P(IdentityTest, ShapeWithStartAndEnd) {
  const Value x = Rounded(DType::kFloat, {2, 3, 4}, Spread(24, 0, 1, 1));
  const auto shape =
      [&](std::vector<std::pair<std::string, AttributeValue>> a) {
        return RunOne(Node("Shape", Attrs(std::move(a))), {x});
      };
  ExpectEqual(shape({}), Int64s({2, 3, 4}));
  ExpectEqual(shape({{"start", int64_t{1}}}), Int64s({3, 4}));
  ExpectEqual(shape({{"start", int64_t{-1}}}), Int64s({4}));
  ExpectEqual(shape({{"end", int64_t{-1}}}), Int64s({2, 3}));
  ExpectEqual(shape({{"start", int64_t{-9}}, {"end", int64_t{9}}}),
              Int64s({2, 3, 4}));
  ExpectEqual(shape({{"start", int64_t{2}}, {"end", int64_t{1}}}), Int64s({}));
  ExpectEqual(RunOne(Node("Shape"), {Of<float>({}, {1})}), Int64s({}));
}

TEST(IdentityInferTest, Symbols) {
  NodeInfo node = Node("Shape", Attrs({{"start", int64_t{1}}}));
  node.input_types = {DType::kFloat};
  EXPECT_EQ(InferShapes(node, {SymbolicDims{Dim::Symbol(3), Dim(), 2}})->at(0),
            "int64[2]");
  EXPECT_EQ(InferShapes(node, {std::nullopt})->at(0), "int64[?]");
  node = Node("Identity");
  node.input_types = {DType::kString};
  EXPECT_EQ(InferShapes(node, {SymbolicDims{Dim::Symbol(3), Dim()}})->at(0),
            "string[s3,?]");
}

}  // namespace
}  // namespace weir
