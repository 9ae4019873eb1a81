#include "kernels/graph/infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::weir::testing::Floats;
using ::weir::testing::Input;
using ::weir::testing::Ints;
using ::weir::testing::Node;

class InferTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::map<std::string, TypedShape, std::less<>>> Run(
      const Graph& graph) {
    const auto order = Validate(graph, operators_.registry);
    if (!order.ok()) return order.status();
    return InferShapes(graph, *order, operators_.registry);
  }

  testing::TestOperators operators_;
};

TEST_F(InferTest, CarriesSymbolsThrough) {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("x", SymbolicDims{Dim::Symbol(0), Dim(3)})};
  graph.constants["b"] = Floats({3}, {1, 2, 3});
  graph.nodes = {Node("Add", {"x", "b"}, {"y"}), Node("Shape", {"y"}, {"s"})};
  graph.outputs = {"y"};
  const auto values = Run(graph);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(ShapeString(values->at("y").shape), "[s0,3]");
  EXPECT_EQ(values->at("s").dtype, DType::kInt64);
  EXPECT_EQ(ShapeString(values->at("s").shape), "[2]");
}

// What inference tells of a value must hold for whatever the caller sends.
TEST_F(InferTest, ASharedNameIsNoPromise) {
  Graph graph;
  graph.symbols = {"N"};
  graph.inputs = {Input("x", SymbolicDims{Dim::Symbol(0)}),
                  Input("y", SymbolicDims{Dim::Symbol(0)})};
  graph.nodes = {Node("Add", {"x", "y"}, {"z"}),
                 Node("Add", {"x", "x"}, {"d"})};
  graph.outputs = {"z", "d"};
  const auto values = Run(graph);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(ShapeString(values->at("z").shape), "[?]");
  EXPECT_EQ(ShapeString(values->at("d").shape), "[s0]");
}

TEST_F(InferTest, ReadsConstantShapes) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(6)})};
  graph.constants["s"] = Ints({2, 3});
  graph.nodes = {Node("Reshape", {"x", "s"}, {"y"})};
  graph.outputs = {"y"};
  EXPECT_EQ(ShapeString(Run(graph)->at("y").shape), "[2,3]");
}

TEST_F(InferTest, LeavesUnknownShapesOpen) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(6)}),
                  Input("s", SymbolicDims{Dim(2)}, DType::kInt64)};
  graph.nodes = {Node("Reshape", {"x", "s"}, {"y"}), Node("Neg", {"y"}, {"z"})};
  graph.outputs = {"z"};
  EXPECT_EQ(ShapeString(Run(graph)->at("z").shape), "[...]");
}

TEST_F(InferTest, NamesTheNodeWhoseShapesDoNotFit) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)}),
                  Input("y", SymbolicDims{Dim(3)})};
  graph.nodes = {Node("Add", {"x", "y"}, {"z"}, "sum")};
  graph.outputs = {"z"};
  const absl::Status status = Run(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* word : {"\"sum\" (Add)", "[2]", "[3]"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST_F(InferTest, NamesTheNodeWhoseTypesDoNotFit) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)}),
                  Input("y", SymbolicDims{Dim(2)}, DType::kInt64)};
  graph.nodes = {Node("Add", {"x", "y"}, {"z"}, "sum")};
  graph.outputs = {"z"};
  const absl::Status status = Run(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* word : {"\"sum\" (Add)", "int64", "float"}) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST_F(InferTest, RefusesShapesThatConstantsMakeHuge) {
  Graph graph;
  graph.constants["s"] = Ints({1'000'000, 1'000'000});
  graph.nodes = {Node("ConstantOfShape", {"s"}, {"y"}, "fill")};
  graph.outputs = {"y"};
  absl::Status status = Run(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"fill\""));

  graph.constants["s"] = Ints({-5});
  status = Run(graph).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"fill\""));
}

TEST_F(InferTest, BoundsListsThatShapesDependOn) {
  Graph graph;
  graph.constants["s"] = Ints(std::vector<int64_t>(kMaxHostInts + 1, 1));
  graph.nodes = {Node("ConstantOfShape", {"s"}, {"y"})};
  graph.outputs = {"y"};
  EXPECT_EQ(Run(graph).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace weir
