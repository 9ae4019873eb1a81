#include "kernels/graph/graph_bytes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::weir::testing::Input;
using ::weir::testing::Node;

Graph Small() {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim(2)})};
  graph.outputs = {"y"};
  graph.nodes = {Node("Neg", {"x"}, {"y"})};
  return graph;
}

// What grows by so many bytes counts for as many more.
TEST(GraphBytesTest, CountsWhatItHolds) {
  constexpr size_t kMany = 10'000;
  const std::string text(kMany, 'a');
  const auto bytes_with = [](void (*change)(Graph&, const std::string&),
                             const std::string& with) {
    Graph graph = Small();
    change(graph, with);
    return GraphBytes(graph);
  };
  for (const auto change : {
           +[](Graph&g, const std::string&t) { g.inputs[0].name = t; },
           +[](Graph&g, const std::string&t) { g.outputs[0] = t; },
           +[](Graph&g, const std::string&t) {
             g.declared_outputs.emplace_back().name = t;
           },
           +[](Graph&g, const std::string&t) { g.symbols.push_back(t); },
           +[](Graph&g, const std::string&t) { g.opsets[t] = 1; },
           +[](Graph&g, const std::string&t) { g.nodes[0].name = t; },
           +[](Graph&g, const std::string&t) { g.nodes[0].domain = t; },
           +[](Graph&g, const std::string&t) { g.nodes[0].op = t; },
           +[](Graph&g, const std::string&t) { g.nodes[0].inputs[0] = t; },
           +[](Graph&g, const std::string&t) { g.nodes[0].outputs[0] = t; },
           +[](Graph&g, const std::string&t) {
             g.nodes[0].attributes.Set(t, int64_t{1});
           },
           +[](Graph&g, const std::string&t) {
             g.nodes[0].attributes.Set("a", t);
           },
           +[](Graph&g, const std::string&t) {
             g.nodes[0].attributes.Set("a", std::vector<std::string>{t});
           },
           +[](Graph&g, const std::string&t) {
             g.nodes[0].attributes.Set("a", std::vector<float>(t.size() / 4));
           },
           +[](Graph&g, const std::string&t) {
             g.nodes[0].attributes.Set("a", std::vector<int64_t>(t.size() / 8));
           },
           +[](Graph&g, const std::string&t) {
             auto constant = std::make_shared<Constant>();
             constant->tensor.dtype = DType::kUint8;
             constant->tensor.dims = {static_cast<int64_t>(t.size())};
             g.nodes[0].attributes.Set(
                 "a", std::shared_ptr<const Constant>(constant));
           },
           +[](Graph&g, const std::string&t) {
             auto constant = std::make_shared<Constant>();
             constant->tensor.dtype = DType::kUint8;
             constant->tensor.dims = {static_cast<int64_t>(t.size())};
             g.constants["c"] = std::move(constant);
           },
       }) {
    const size_t small = bytes_with(change, text.substr(0, 1000));
    const size_t large = bytes_with(change, text);
    EXPECT_EQ(large - small, kMany - 1000);
    EXPECT_GT(small, GraphBytes(Small()));
  }
}

TEST(GraphBytesTest, CountsTheTextOfAConstant) {
  const std::string text(5000, 'a');
  const StringRef refs[] = {{text.data(), text.size()}, {text.data(), 7}};
  auto constant = std::make_shared<Constant>();
  constant->tensor.dtype = DType::kString;
  constant->tensor.dims = {2};
  constant->tensor.data = refs;
  Graph graph = Small();
  graph.constants["c"] = std::move(constant);
  EXPECT_GE(GraphBytes(graph), GraphBytes(Small()) + 5007 + sizeof(refs));
}

TEST(GraphBytesTest, CountsEachNode) {
  Graph graph = Small();
  const size_t one = GraphBytes(graph);
  for (int i = 0; i < 100; ++i) {
    graph.nodes.push_back(Node("Neg", {"x"}, {"z"}));
  }
  EXPECT_GE(GraphBytes(graph), one + 100 * sizeof(GraphNode));
}

}  // namespace
}  // namespace weir
