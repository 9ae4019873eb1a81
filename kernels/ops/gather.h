// What nodes of Gather say, read once for the kernels of both devices. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/base/saturating.h"
#include "kernels/ops/op.h"

namespace weir {

// out[block, i, element] = data[block, indices[i], element]
struct GatherShape {
  int64_t blocks = 1;   // of the data: what is before the axis
  int64_t axis = 1;     // its size
  int64_t indices = 1;  // how many
  int64_t inner = 1;    // elements per index

  // Of the output.
  int64_t rows() const { return SaturatingMul(blocks, indices); }
  int64_t elements() const { return SaturatingMul(rows(), inner); }
};

// INVALID_ARGUMENT names the axis.
WEIR_EXPORT absl::StatusOr<GatherShape> GatherShapeOf(const NodeInfo& node,
                                                      const PlanArgs& args);

}  // namespace weir
