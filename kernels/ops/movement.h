// What nodes of Transpose, Slice and Pad say, read once for the kernels of both
// devices (of Concat and Split, AxisOf in infer.h). Pure functions; inference
// has accepted the node, so that errors are unlikely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"
#include "kernels/ops/strided_copy.h"

namespace weir {

// Transpose: the input axis that each axis of the output is. INVALID_ARGUMENT
// names the attribute.
WEIR_EXPORT absl::StatusOr<std::vector<size_t>> PermutationOf(
    const NodeInfo& node, size_t rank);

// Where the elements of the output lie in input 0: at
// offset + sum(index[d] * strides[d]).
struct SliceView {
  Dims strides;
  int64_t offset = 0;
};
WEIR_EXPORT absl::StatusOr<SliceView> SliceViewOf(const NodeInfo& node,
                                                  const PlanArgs& args);

// INVALID_ARGUMENT names the attribute.
WEIR_EXPORT absl::StatusOr<PadCopy::Mode> PadModeOf(const NodeInfo& node);
// The padding before each axis of input 0; negative where it is cropped.
WEIR_EXPORT absl::StatusOr<Dims> PadsBefore(const NodeInfo& node,
                                            const PlanArgs& args);

}  // namespace weir
