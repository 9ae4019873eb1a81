// Walks a lowered graph once, forward: element types, symbolic shapes, and,
// where a folder is given, the values of nodes that depend on constants alone.
// Internal to this layer.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/ops/registry.h"

namespace weir {

// Called for a node whose inputs are all constants and whose outputs' shapes
// are known. Gives a constant per output, or nothing where the node is better
// left alone.
using ConstantFolder = absl::FunctionRef<
    absl::StatusOr<std::vector<std::shared_ptr<const Constant>>>(
        const LoweredNode& node,
        const std::vector<std::shared_ptr<const Constant>>& inputs,
        const std::vector<TensorMeta>& outputs)>;

// Asks `go_on` before each node, and ends with its error.
absl::Status InferAndFold(LoweredGraph& graph, const OpRegistry& registry,
                          std::optional<ConstantFolder> fold,
                          absl::FunctionRef<absl::Status()> go_on);

}  // namespace weir
