#include "kernels/graph/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// out = op(in0, ...) over vectors.
Graph Vectors(std::string op, size_t inputs, DType dtype = DType::kFloat,
              Dim extent = Dim()) {
  Graph graph;
  graph.opsets = {{"", 17}};
  GraphNode node;
  node.op = std::move(op);
  for (size_t i = 0; i < inputs; ++i) {
    const std::string name = "in" + std::to_string(i);
    graph.inputs.push_back({name, dtype, SymbolicDims{extent}});
    node.inputs.push_back(name);
  }
  node.outputs = {"out"};
  graph.nodes = {node};
  graph.outputs = {"out"};
  return graph;
}

const std::vector<ValueDecl>& FloatVector() {
  static const auto* outputs =
      new std::vector<ValueDecl>{{"out", DType::kFloat, SymbolicDims{Dim()}}};
  return *outputs;
}

// b reads a's only output; a's is wanted if `keep`.
std::vector<JoinPart> Chain(const Graph& a, const Graph& b, bool keep = false) {
  std::vector<JoinPart> parts(2);
  parts[0] = {&a, &FloatVector(), {std::nullopt}, {keep}};
  parts[1] = {&b, &FloatVector(), {PartValue{0, 0}}, {true}};
  return parts;
}

TEST(JoinTest, ReadsAnEarlierPartAndKeepsItInside) {
  const Graph a = Vectors("Neg", 1), b = Vectors("Abs", 1);
  const auto parts = Chain(a, b);
  const auto joined = JoinGraphs(parts);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(Validate(*joined, *MakeOpRegistry()).ok());
  ASSERT_EQ(joined->inputs.size(), 1u);
  EXPECT_EQ(joined->inputs[0].name, "0/in0");
  EXPECT_THAT(joined->outputs, ElementsAre("1/out"));
  ASSERT_EQ(joined->nodes.size(), 2u);
  EXPECT_THAT(joined->nodes[1].inputs, ElementsAre("0/out"));

  const JoinedInterface interface = JoinInterfaces(parts);
  ASSERT_EQ(interface.inputs.size(), 1u);
  EXPECT_EQ(interface.inputs[0].part, 0u);
  ASSERT_EQ(interface.outputs.size(), 1u);
  EXPECT_EQ(interface.outputs[0].part, 1u);
}

TEST(JoinTest, OutputsFollowThePartsOrder) {
  const Graph a = Vectors("Neg", 1), b = Vectors("Abs", 1);
  const auto joined = JoinGraphs(Chain(a, b, /*keep=*/true));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(joined->outputs, ElementsAre("0/out", "1/out"));
}

TEST(JoinTest, SymbolsOfPartsStayApart) {
  Graph a = Vectors("Add", 2, DType::kFloat, Dim::Symbol(0));
  a.symbols = {"n"};
  std::vector<JoinPart> parts(2);
  for (JoinPart& part : parts) {
    part = {&a, &FloatVector(), {std::nullopt, std::nullopt}, {true}};
  }
  const auto joined = JoinGraphs(parts);
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_THAT(joined->symbols, ElementsAre("0/n", "1/n"));
  ASSERT_EQ(joined->inputs.size(), 4u);
  EXPECT_EQ((*joined->inputs[1].shape)[0].symbol(), 0);
  EXPECT_EQ((*joined->inputs[2].shape)[0].symbol(), 1);
}

TEST(JoinTest, ReadsIntoANamedExtent) {
  const Graph producer = Vectors("Neg", 1);
  Graph reader = Vectors("Add", 2, DType::kFloat, Dim::Symbol(0));
  reader.symbols = {"n"};
  std::vector<JoinPart> parts(2);
  parts[0] = {&producer, &FloatVector(), {std::nullopt}, {false}};
  parts[1] = {&reader, &FloatVector(), {PartValue{0, 0}, std::nullopt}, {true}};
  EXPECT_TRUE(JoinGraphs(parts).ok());
}

TEST(JoinTest, RefusesWhatItCouldNotCheck) {
  const Graph producer = Vectors("Neg", 1);
  const Graph integers = Vectors("Abs", 1, DType::kInt32);
  const Graph three = Vectors("Abs", 1, DType::kFloat, Dim(3));
  for (const Graph* reader : {&integers, &three}) {
    const absl::Status status = JoinGraphs(Chain(producer, *reader)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("\"in0\""));
  }
}

// A graph that says nothing of a domain means its newest opset.
TEST(JoinTest, RefusesAnOpsetThatAPartOnlyImplies) {
  const Graph a = Vectors("Neg", 1);
  Graph b = Vectors("Abs", 1);
  b.opsets = {};
  for (const auto& parts : {Chain(a, b), Chain(b, a)}) {
    const absl::Status status = JoinGraphs(parts).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
  const auto joined = JoinGraphs(Chain(b, b));
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(Validate(*joined, *MakeOpRegistry()).ok());
}

TEST(JoinTest, RefusesTwoOpsetsOfOneDomain) {
  const Graph a = Vectors("Neg", 1);
  Graph b = Vectors("Abs", 1);
  b.opsets = {{"", 13}};
  const absl::Status status = JoinGraphs(Chain(a, b)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("17 and 13"));
}

}  // namespace
}  // namespace weir
