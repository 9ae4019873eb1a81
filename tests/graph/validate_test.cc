#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/graph/graph.h"
#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weir::testing::Floats;
using ::weir::testing::Input;
using ::weir::testing::Node;

class ValidateTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<size_t>> Run(const Graph& graph) {
    return Validate(graph, operators_.registry);
  }

  void ExpectError(const Graph& graph, absl::StatusCode code,
                   std::vector<std::string> words) {
    const absl::Status status = Run(graph).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }

  testing::TestOperators operators_;
};

Graph OneNode(GraphNode node) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.outputs = {"y"};
  graph.nodes = {std::move(node)};
  return graph;
}

TEST_F(ValidateTest, KeepsAnOrderThatFits) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.outputs = {"c"};
  graph.nodes = {Node("Neg", {"x"}, {"a"}), Node("Neg", {"x"}, {"b"}),
                 Node("Add", {"a", "b"}, {"c"})};
  EXPECT_THAT(*Run(graph), ElementsAre(0, 1, 2));
}

TEST_F(ValidateTest, NamesAreUtf8) {
  const auto expect = [&](const Graph& graph, const std::string& what) {
    ExpectError(graph, absl::StatusCode::kInvalidArgument,
                {what, "is not UTF-8"});
  };
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.nodes[0].name = "a\xff";
  expect(graph, "the node \"a\\xff\"");
  graph = OneNode(Node("Neg\xc3", {"x"}, {"y"}));
  expect(graph, "the operator \"Neg\\xc3\"");
  graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.nodes[0].domain = "\x80";
  expect(graph, "the domain \"\\x80\"");
  graph = OneNode(Node("Neg", {"x\xff"}, {"y"}));
  graph.inputs[0].name = "x\xff";
  expect(graph, "the input \"x\\xff\"");
  graph = OneNode(Node("Neg", {"x"}, {"y\xff"}));
  expect(graph, "the value \"y\\xff\"");
  graph.outputs = {"y\xff"};
  expect(graph, "the output \"y\\xff\"");
  graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.symbols = {"N\xff"};
  expect(graph, "the dimension \"N\\xff\"");
  graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.constants["c\xff"] = Floats({1}, {1});
  expect(graph, "the constant \"c\\xff\"");
  graph = OneNode(Node("Neg", {"x"}, {"\xc3\xa9"}));
  graph.outputs = {"\xc3\xa9"};
  EXPECT_THAT(*Run(graph), ElementsAre(0));
}

TEST_F(ValidateTest, OrdersNodesAfterTheirProducers) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.outputs = {"c"};
  graph.nodes = {Node("Add", {"a", "b"}, {"c"}), Node("Neg", {"a"}, {"b"}),
                 Node("Neg", {"x"}, {"a"})};
  EXPECT_THAT(*Run(graph), ElementsAre(2, 1, 0));
}

TEST_F(ValidateTest, NamesTheNodesOfACycle) {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.outputs = {"d"};
  graph.nodes = {Node("Neg", {"x"}, {"a"}, "before"),
                 Node("Add", {"a", "c"}, {"b"}, "first"),
                 Node("Neg", {"b"}, {"c"}, "second"),
                 Node("Neg", {"c"}, {"d"}, "after")};
  ExpectError(graph, absl::StatusCode::kInvalidArgument,
              {"cycle", "\"first\" (Add)", "\"second\" (Neg)"});
  EXPECT_THAT(std::string(Run(graph).status().message()),
              ::testing::Not(HasSubstr("after")));
}

TEST_F(ValidateTest, FindsANodeThatFeedsItself) {
  ExpectError(OneNode(Node("Neg", {"y"}, {"y"}, "self")),
              absl::StatusCode::kInvalidArgument, {"cycle", "self"});
}

TEST_F(ValidateTest, TakesALongCycleWithoutRecursion) {
  Graph graph;
  const int n = 90000;
  for (int i = 0; i < n; ++i) {
    graph.nodes.push_back(
        Node("Neg", {absl::StrCat("v", i)}, {absl::StrCat("v", (i + 1) % n)}));
  }
  graph.outputs = {"v0"};
  ExpectError(graph, absl::StatusCode::kInvalidArgument,
              {"cycle", "more", "\"#"});
}

TEST_F(ValidateTest, NamesAMissingInputAndItsNode) {
  ExpectError(OneNode(Node("Add", {"x", "ghost"}, {"y"}, "sum")),
              absl::StatusCode::kInvalidArgument,
              {"\"sum\" (Add)", "input 1", "\"ghost\""});
}

TEST_F(ValidateTest, TellsWhichNodeItIs) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.nodes.push_back(Node("Neg", {"ghost"}, {"z"}));
  EXPECT_EQ(NodeIndex(Run(graph).status()), 1u);
}

TEST_F(ValidateTest, RefusesAMissingOutput) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"z"}));
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"output \"y\""});
  EXPECT_EQ(Field(Run(graph).status()), "outputs[0]");
}

TEST_F(ValidateTest, RefusesAValueMadeTwice) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}, "one"));
  graph.nodes.push_back(Node("Neg", {"x"}, {"y"}, "two"));
  ExpectError(graph, absl::StatusCode::kInvalidArgument,
              {"\"two\"", "\"y\"", "\"one\""});
  ExpectError(OneNode(Node("Neg", {"x"}, {"x"})),
              absl::StatusCode::kInvalidArgument, {"an input or a constant"});
}

TEST_F(ValidateTest, RefusesTheSameInputTwice) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.inputs.push_back(graph.inputs[0]);
  ExpectError(graph, absl::StatusCode::kInvalidArgument,
              {"\"x\"", "declared twice"});
  EXPECT_EQ(Field(Run(graph).status()), "inputs[1]");
}

TEST_F(ValidateTest, RefusesWrongArity) {
  ExpectError(OneNode(Node("Add", {"x"}, {"y"}, "sum")),
              absl::StatusCode::kInvalidArgument,
              {"\"sum\"", "input 1 (B) is missing"});
  ExpectError(OneNode(Node("Neg", {"x", "x"}, {"y"})),
              absl::StatusCode::kInvalidArgument, {"at most 1"});
  ExpectError(OneNode(Node("Neg", {"x"}, {"y", "z"})),
              absl::StatusCode::kInvalidArgument, {"2 outputs"});
  ExpectError(OneNode(Node("Concat", {}, {"y"})),
              absl::StatusCode::kInvalidArgument, {"missing"});
}

TEST_F(ValidateTest, SaysWhichOperatorIsMissing) {
  Graph graph = OneNode(Node("Frobnicate", {"x"}, {"y"}, "odd"));
  graph.opsets[""] = 17;
  ExpectError(graph, absl::StatusCode::kUnimplemented,
              {"\"odd\" (Frobnicate)", "opset 17",
               "; ListOperators, or \"weir ops\", lists those that there are"});
  // Only its case, or its domain, keeps it from being one.
  graph.nodes[0].op = "neg";
  ExpectError(graph, absl::StatusCode::kUnimplemented,
              {"such operator (opset 17); did you mean Neg?"});
  graph.nodes[0].op = "Decode";
  ExpectError(graph, absl::StatusCode::kUnimplemented,
              {"such operator (opset 17); did you mean weir.Decode?"});
  graph.nodes[0].op = "Neg";
  graph.nodes[0].domain = "weir";
  ExpectError(graph, absl::StatusCode::kUnimplemented,
              {"such operator (opset 1); did you mean Neg?"});
  graph.nodes[0].domain = "com.acme";
  ExpectError(graph, absl::StatusCode::kUnimplemented,
              {"\"odd\"",
               "there is no domain \"com.acme\": use \"\" (ONNX) or \"weir\""});
}

TEST_F(ValidateTest, ChecksTheOpset) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}, "n"));
  for (int good : {11, 13, 25}) {
    graph.opsets[""] = good;
    EXPECT_TRUE(Run(graph).ok()) << good;
  }
  for (int bad : {0, 10, 26}) {
    graph.opsets[""] = bad;
    ExpectError(graph, absl::StatusCode::kUnimplemented,
                {"\"n\" (Neg)", "opset", "11 to 25"});
  }
}

TEST_F(ValidateTest, RefusesSizesThatOverflow) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.inputs[0].shape = SymbolicDims{Dim(int64_t{1000000000000})};
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"x\""});
  graph.inputs[0].shape =
      SymbolicDims{Dim(int64_t{1} << 40), Dim(int64_t{1} << 40)};
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"x\""});
  graph.inputs[0].shape = SymbolicDims(9, Dim(1));
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"x\"", "rank"});
}

TEST_F(ValidateTest, RefusesNegativeDims) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.inputs[0].shape = SymbolicDims{Dim(int64_t{-3})};
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"x\"", "negative"});
  graph = OneNode(Node("Add", {"x", "c"}, {"y"}));
  graph.constants["c"] = Floats({-2}, {1, 2});
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"c\"", "negative"});
}

TEST_F(ValidateTest, RefusesSymbolsThatAreNotThere) {
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  graph.inputs[0].shape = SymbolicDims{Dim::Symbol(0)};
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"symbol"});
  graph.symbols = {"N"};
  EXPECT_TRUE(Run(graph).ok());
}

TEST_F(ValidateTest, RefusesEmptyAndHugeGraphs) {
  ExpectError(Graph(), absl::StatusCode::kInvalidArgument, {"no outputs"});
  Graph graph = OneNode(Node("Neg", {"x"}, {"y"}));
  GraphLimits limits;
  graph.nodes.push_back(Node("Neg", {"y"}, {"z"}));
  limits.max_nodes = 2;
  EXPECT_TRUE(Validate(graph, operators_.registry, limits).ok());
  limits.max_nodes = 1;
  const absl::Status status =
      Validate(graph, operators_.registry, limits).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(status), "GRAPH_TOO_LARGE");
  limits = {};
  limits.max_values = 3;
  EXPECT_EQ(Validate(graph, operators_.registry, limits).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ValidateTest, RefusesEndlessNames) {
  const std::string name(2000, 'n');
  ExpectError(OneNode(Node("Neg", {name}, {"y"})),
              absl::StatusCode::kInvalidArgument, {"2000 bytes"});
  ExpectError(OneNode(Node(name, {"x"}, {"y"})),
              absl::StatusCode::kInvalidArgument, {"2000 bytes"});
  const absl::Status status =
      Run(OneNode(Node("Neg", {"x"}, {"y"}, name))).status();
  EXPECT_LT(status.message().size(), 100u);
}

TEST_F(ValidateTest, RefusesConstantsWithoutSense) {
  Graph graph = OneNode(Node("Add", {"x", "c"}, {"y"}));
  graph.constants["c"] = nullptr;
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"c\""});
  auto hollow = std::make_shared<Constant>();
  hollow->tensor = {DType::kFloat, {4}, nullptr};
  graph.constants["c"] = hollow;
  ExpectError(graph, absl::StatusCode::kInvalidArgument, {"\"c\"", "no data"});
}

}  // namespace
}  // namespace weir
