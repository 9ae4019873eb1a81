#include "kernels/graph/symbolic_pass.h"

#include <utility>

#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/node_error.h"
#include "kernels/graph/node_inference.h"
#include "kernels/ops/constant.h"

namespace weir {
namespace {

bool Foldable(const LoweredGraph& graph, const LoweredNode& node) {
  if (node.def->random || node.def->test_only) return false;
  for (int input : node.inputs) {
    if (input == kNoValue) continue;
    const auto& constant = graph.values[static_cast<size_t>(input)].constant;
    if (constant == nullptr) return false;
  }
  return true;
}

// A Constant of any size is a constant, never a step.
absl::Status TakeConstant(const LoweredNode& node, LoweredGraph* graph) {
  std::shared_ptr<const Constant> constant =
      node.info.attributes.Tensor("value");
  if (constant == nullptr) {
    auto value = ConstantValue(node.info);
    if (!value.ok()) return NodeError(value.status(), node);
    constant = std::make_shared<const Constant>(*std::move(value));
  }
  graph->values[static_cast<size_t>(node.outputs[0])].constant =
      std::move(constant);
  return absl::OkStatus();
}

// Empty unless every output's shape is known.
std::optional<std::vector<TensorMeta>> KnownOutputs(
    const std::vector<TypedShape>& outputs) {
  std::vector<TensorMeta> metas;
  for (const TypedShape& output : outputs) {
    std::optional<Dims> dims = ToConcrete(output.shape);
    if (!dims.has_value()) return std::nullopt;
    metas.push_back(MakeMeta(output.dtype, *std::move(dims)));
  }
  return metas;
}

// By node: some output of the graph depends on it.
std::vector<bool> FindWanted(const LoweredGraph& graph) {
  std::vector<bool> values(graph.values.size()), nodes(graph.nodes.size());
  for (const int id : graph.outputs) values[static_cast<size_t>(id)] = true;
  for (size_t p = graph.nodes.size(); p-- > 0;) {
    const LoweredNode& node = graph.nodes[p];
    for (const int id : node.outputs) {
      if (values[static_cast<size_t>(id)]) nodes[p] = true;
    }
    if (!nodes[p]) continue;
    for (const int id : node.inputs) {
      if (id != kNoValue) values[static_cast<size_t>(id)] = true;
    }
  }
  return nodes;
}

}  // namespace

absl::Status InferAndFold(LoweredGraph& graph, const OpRegistry& registry,
                          std::optional<ConstantFolder> fold,
                          absl::FunctionRef<absl::Status()> go_on) {
  std::vector<SymbolicShape> shapes;
  std::vector<std::optional<std::vector<int64_t>>> host_ints;
  std::vector<std::shared_ptr<const Constant>> constants;
  const std::vector<bool> wanted = FindWanted(graph);
  for (size_t position = 0; position < graph.nodes.size(); ++position) {
    WEIR_RETURN_IF_ERROR(go_on());
    LoweredNode& node = graph.nodes[position];
    shapes.assign(node.inputs.size(), std::nullopt);
    host_ints.assign(node.inputs.size(), std::nullopt);
    node.info.input_types.assign(node.inputs.size(), DType::kInvalid);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue) continue;
      const LoweredValue& value =
          graph.values[static_cast<size_t>(node.inputs[i])];
      node.info.input_types[i] = value.dtype;
      shapes[i] = value.shape;
    }
    const absl::Status fits = registry.Check(node.info);
    if (!fits.ok()) return WithNodeIndex(fits, node.index);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue || !node.IsHostInput(i)) continue;
      const LoweredValue& value =
          graph.values[static_cast<size_t>(node.inputs[i])];
      if (value.constant == nullptr) continue;
      auto ints = graph.digests.Take(node, i, value.constant);
      if (!ints.ok()) return NodeError(ints.status(), node);
      host_ints[i] = *std::move(ints);
    }
    WEIR_ASSIGN_OR_RETURN(std::vector<TypedShape> outputs,
                          InferNode(node, {shapes, host_ints}));
    for (size_t i = 0; i < outputs.size(); ++i) {
      LoweredValue& value = graph.values[static_cast<size_t>(node.outputs[i])];
      value.dtype = outputs[i].dtype;
      value.shape = outputs[i].shape;
    }
    if (!fold.has_value() || !wanted[position] || !Foldable(graph, node)) {
      continue;
    }
    if (node.info.domain.empty() && node.info.op == "Constant") {
      WEIR_RETURN_IF_ERROR(TakeConstant(node, &graph));
      continue;
    }
    const auto metas = KnownOutputs(outputs);
    if (!metas.has_value()) continue;
    constants.clear();
    for (int input : node.inputs) {
      constants.push_back(
          input == kNoValue
              ? nullptr
              : graph.values[static_cast<size_t>(input)].constant);
    }
    auto folded = (*fold)(node, constants, *metas);
    if (!folded.ok()) return folded.status();
    for (size_t i = 0; i < folded->size(); ++i) {
      graph.values[static_cast<size_t>(node.outputs[i])].constant =
          std::move((*folded)[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
