// What nodes of Softmax say, read once for the kernels of both devices.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/base/saturating.h"
#include "kernels/ops/op.h"

namespace weir {

struct SoftmaxShape {
  int64_t outer = 1;
  int64_t length = 1;  // of what sums up to 1
  int64_t stride = 1;  // between its elements

  int64_t rows() const {
    return length == 0 ? 0 : SaturatingMul(outer, stride);
  }
};

// INVALID_ARGUMENT names the axis.
WEIR_EXPORT absl::StatusOr<SoftmaxShape> SoftmaxShapeOf(const NodeInfo& node,
                                                        const Dims& dims);

}  // namespace weir
