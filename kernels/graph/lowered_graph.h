// A validated graph with numbers instead of names: what inference, compilation
// and planning walk. Internal to this layer.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/graph/constant_digests.h"
#include "kernels/graph/graph.h"
#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"

namespace weir {

inline constexpr int kNoValue = -1;

struct LoweredNode {
  size_t index = 0;  // in Graph::nodes
  const OpDef* def = nullptr;
  NodeInfo info;             // input types are filled in by inference
  std::string label;         // NodeLabel
  std::vector<int> inputs;   // values; kNoValue where missing
  std::vector<int> outputs;  // values; an unwanted one has a value too
  // Made by passes: further nodes of the caller's that it stands for.
  struct Joined {
    size_t index;  // in Graph::nodes
    std::string name;
  };
  std::vector<Joined> joined;
  bool inserted = false;  // moves a value of the node that it names

  bool IsHostInput(size_t i) const {
    return i < 32 && (def->host_inputs >> i & 1u) != 0;
  }
};

struct LoweredValue {
  std::string name;  // empty: an unwanted output
  DType dtype = DType::kInvalid;
  SymbolicShape shape;  // symbols are the lowered graph's own, not the caller's
  int producer = -1;    // position in LoweredGraph::nodes
  int input = -1;       // which graph input it is
  std::shared_ptr<const Constant> constant;
  Layout layout = Layout::kRowMajor;
};

struct LoweredGraph {
  std::vector<LoweredNode> nodes;  // every node follows its producers
  std::vector<LoweredValue> values;
  std::vector<int> inputs;
  std::vector<int> outputs;
  std::vector<Dim> symbols;  // by symbol of its own: the caller's
  ConstantDigests digests;
};

// `order` is from Validate of the same graph and registry.
LoweredGraph Lower(const Graph& graph, const std::vector<size_t>& order,
                   const OpRegistry& registry);

// `status` with the node's label before its message, and its index.
absl::Status NodeError(const absl::Status& status, const LoweredNode& node);

// By value: whether shapes may depend on its elements, which the host then
// reads or computes.
std::vector<bool> AskedByHost(const LoweredGraph& graph);

}  // namespace weir
