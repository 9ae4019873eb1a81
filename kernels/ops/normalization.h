// What nodes of Softmax, LayerNormalization and BatchNormalization say, read
// once for the kernels of both devices. Pure.
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

struct LayerNormShape {
  int64_t rows = 1;    // 0 if they are empty and have no statistics to tell
  int64_t length = 1;  // of a row
  Dims normalized;     // the axes that make one
  double epsilon = 0;
  DType statistics = DType::kFloat;  // of Mean and InvStdDev
};

// INVALID_ARGUMENT names the axis or stash_type.
WEIR_EXPORT absl::StatusOr<LayerNormShape> LayerNormShapeOf(
    const NodeInfo& node, const Dims& dims);

// What BatchNormalization adds to a variance. UNIMPLEMENTED for a node that
// trains.
WEIR_EXPORT absl::StatusOr<double> BatchNormEpsilonOf(const NodeInfo& node);

}  // namespace weir
