// A graph: what a caller wants computed. Plain data, built by the importers
// (weir.v1 Graph, ONNX) or by hand, and not trusted: Validate checks it before
// anything else looks at it. Movable, copyable; no thread rules.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"
#include "kernels/tensor/shape.h"

namespace weir {

struct ValueDecl {
  std::string name;
  DType dtype = DType::kInvalid;
  SymbolicShape shape;  // symbols index Graph::symbols
};

struct GraphNode {
  std::string name;    // may be empty: errors then say "#3 (Add)"
  std::string domain;  // "" or "weir"
  std::string op;
  Attributes attributes;
  std::vector<std::string> inputs;   // value names; "" is a missing optional
  std::vector<std::string> outputs;  // "" is an output nobody wants
};

struct Graph {
  std::vector<ValueDecl> inputs;
  std::vector<std::string> outputs;
  // What the graph's source says of them, where it says anything: types and
  // sizes that inference finds otherwise are refused. Empty, or as `outputs`;
  // kInvalid and unknown shapes say nothing.
  std::vector<ValueDecl> declared_outputs;
  std::vector<GraphNode> nodes;  // any order
  std::map<std::string, std::shared_ptr<const Constant>, std::less<>> constants;
  std::map<std::string, int, std::less<>> opsets;  // by domain
  // Names of open extents, for messages. Extents that share one need not be
  // equal: each is whatever the caller gives, and an operator that needs two to
  // agree says so.
  std::vector<std::string> symbols;
};

struct GraphLimits {
  size_t max_nodes = 100'000;
  size_t max_values = 400'000;
};

// "node 'conv1' (Conv)" or "node #3 (Add)", for messages.
WEIR_EXPORT std::string NodeLabel(const GraphNode& node, size_t index);

// RESOURCE_EXHAUSTED, reason GRAPH_TOO_LARGE, for more nodes than a graph may
// have, or more values: inputs, constants and outputs, and those of all nodes.
// Validate says the same; who makes a graph of a stranger's message asks before
// it copies them.
WEIR_EXPORT absl::Status CheckNodeCount(size_t nodes,
                                        const GraphLimits& limits = {});
WEIR_EXPORT absl::Status CheckValueCount(size_t values,
                                         const GraphLimits& limits = {});

// Checks names (unique, defined before use in some order), arity, attributes,
// element types where known, constants' sizes, limits; gives an order in which
// every node follows its producers. INVALID_ARGUMENT names the node: a cycle,
// a missing or duplicate value; UNIMPLEMENTED: an operator that weir lacks.
WEIR_EXPORT absl::StatusOr<std::vector<size_t>> Validate(
    const Graph& graph, const OpRegistry& registry,
    const GraphLimits& limits = {});

}  // namespace weir
