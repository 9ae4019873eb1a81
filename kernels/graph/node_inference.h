// Types and shapes of one node's outputs, by its operator's own rule. Used with
// symbols when a program is compiled and with sizes when a plan is made.
// Internal to this layer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/graph/infer.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/ops/op.h"

namespace weir {

// The meta of dims that are known to fit. REQUIRES: ByteSize(...) is OK.
TensorMeta MakeMeta(DType dtype, Dims dims);

// A host input's digest, or its values: empty for a type that is not a list of
// integers. UNIMPLEMENTED beyond kMaxHostInts; RESOURCE_EXHAUSTED beyond the
// budget.
absl::StatusOr<std::vector<int64_t>> HostIntsOf(const LoweredNode& node,
                                                size_t i,
                                                const HostTensor& value,
                                                DigestBudget& budget);

// Per input of the node; what is missing or unknown is empty.
struct NodeInputs {
  absl::Span<const SymbolicShape> shapes;
  absl::Span<const std::optional<std::vector<int64_t>>> host_ints;
};

// One entry per output. `node.info.input_types` must be set. Refuses invalid
// dims and tensors that are too large; errors name the node.
absl::StatusOr<std::vector<TypedShape>> InferNode(const LoweredNode& node,
                                                  const NodeInputs& inputs);

}  // namespace weir
