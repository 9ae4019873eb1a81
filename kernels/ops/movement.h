// What nodes of Slice and Pad say, read once for the kernels of both devices.
// Pure functions; inference has accepted the node, so that errors are unlikely.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"
#include "kernels/ops/strided_copy.h"

namespace weir {

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
