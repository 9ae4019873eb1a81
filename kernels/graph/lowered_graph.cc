#include "kernels/graph/lowered_graph.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/graph/node_error.h"

namespace weir {

LoweredGraph Lower(const Graph& graph, const std::vector<size_t>& order,
                   const OpRegistry& registry) {
  LoweredGraph lowered;
  absl::flat_hash_map<absl::string_view, int> ids;
  const auto add = [&](const std::string& name) -> int {
    const int id = static_cast<int>(lowered.values.size());
    lowered.values.emplace_back().name = name;
    if (!name.empty()) ids.emplace(name, id);
    return id;
  };
  for (const ValueDecl& input : graph.inputs) {
    const int id = add(input.name);
    LoweredValue& value = lowered.values.back();
    value.dtype = input.dtype;
    value.shape = input.shape;
    if (value.shape.has_value()) {
      for (Dim& dim : *value.shape) {
        if (!dim.symbolic()) continue;
        // A shared name promises nothing: each extent has its own.
        lowered.symbols.push_back(dim);
        dim = Dim::Symbol(static_cast<int>(lowered.symbols.size()) - 1);
      }
    }
    value.input = static_cast<int>(lowered.inputs.size());
    lowered.inputs.push_back(id);
  }
  for (const auto& [name, constant] : graph.constants) {
    add(name);
    LoweredValue& value = lowered.values.back();
    value.dtype = constant->tensor.dtype;
    value.shape = ToSymbolic(constant->tensor.dims);
    value.constant = constant;
  }
  lowered.nodes.reserve(order.size());
  for (size_t index : order) {
    const GraphNode& from = graph.nodes[index];
    LoweredNode& node = lowered.nodes.emplace_back();
    node.index = index;
    node.def = registry.Find(from.domain, from.op);
    node.label = NodeLabel(from, index);
    node.info.name = from.name.empty() ? absl::StrCat("#", index) : from.name;
    node.info.domain = from.domain;
    node.info.op = from.op;
    node.info.opset = OpsetOf(graph, from.domain);
    node.info.attributes = from.attributes;
    for (const std::string& name : from.inputs) {
      node.inputs.push_back(name.empty() ? kNoValue : ids.find(name)->second);
    }
    while (!node.inputs.empty() && node.inputs.back() == kNoValue) {
      node.inputs.pop_back();
    }
    // As if those had not been listed that the caller leaves out at the end; of
    // a variadic output the number may count.
    size_t outputs = from.outputs.size();
    while (outputs > 0 && outputs <= node.def->outputs.size() &&
           from.outputs[outputs - 1].empty() &&
           node.def->outputs[outputs - 1].optional) {
      --outputs;
    }
    for (size_t i = 0; i < outputs; ++i) {
      node.outputs.push_back(add(from.outputs[i]));
      lowered.values.back().producer =
          static_cast<int>(lowered.nodes.size()) - 1;
    }
    node.info.num_outputs = static_cast<int>(node.outputs.size());
  }
  for (const std::string& name : graph.outputs) {
    lowered.outputs.push_back(ids.find(name)->second);
  }
  return lowered;
}

absl::Status NodeError(const absl::Status& status, const LoweredNode& node) {
  return WithNodeIndex(
      WithNode(Annotate(status, node.label + ": "), node.label), node.index);
}

std::vector<bool> AskedByHost(const LoweredGraph& graph) {
  std::vector<bool> asked(graph.values.size(), false);
  for (size_t p = graph.nodes.size(); p-- > 0;) {
    const LoweredNode& node = graph.nodes[p];
    const bool all =
        !node.def->shape_only && absl::c_any_of(node.outputs, [&](int id) {
          return asked[static_cast<size_t>(id)];
        });
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const int id = node.inputs[i];
      if (id == kNoValue) continue;
      // Of a graph's input, its digest is all that the host reads.
      const bool reads = node.IsHostInput(i) &&
                         (node.def->digest == nullptr ||
                          graph.values[static_cast<size_t>(id)].input < 0);
      if (all || reads) asked[static_cast<size_t>(id)] = true;
    }
  }
  return asked;
}

}  // namespace weir
