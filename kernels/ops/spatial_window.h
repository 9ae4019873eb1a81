// Where the windows of a convolution or pooling lie: the attributes
// kernel_shape, strides, dilations, pads, auto_pad and ceil_mode, which ONNX
// gives the same meaning for both. Pure functions; shared by the CPU and CUDA
// kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// Most spatial axes that weir's kernels take.
inline constexpr int kMaxSpatialRank = 3;

// One spatial axis: window i covers the input positions
// i * stride - pad_begin + t * dilation for t in [0, kernel).
struct WindowAxis {
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t pad_begin = 0;
  int64_t pad_end = 0;

  int64_t reach() const { return (kernel - 1) * dilation + 1; }
};

struct SpatialWindow {
  enum class AutoPad { kNotSet, kValid, kSameUpper, kSameLower };

  std::vector<WindowAxis> axes;  // pads are 0 unless kNotSet
  AutoPad auto_pad = AutoPad::kNotSet;
  bool ceil_mode = false;

  int rank() const { return static_cast<int>(axes.size()); }
};

// `kernel_shape` is used where the attribute is missing (the weights' shape);
// if it is empty too, that is an error. INVALID_ARGUMENT names the attribute:
// a wrong length, a size that is not positive, a negative pad, kernels that
// differ from `kernel_shape`. UNIMPLEMENTED: more axes than kMaxSpatialRank.
WEIR_EXPORT absl::StatusOr<SpatialWindow> ParseSpatialWindow(
    const NodeInfo& node, int spatial_rank,
    absl::Span<const int64_t> kernel_shape);

// The number of windows along `axis`; INVALID_ARGUMENT if there is none.
WEIR_EXPORT absl::StatusOr<Dim> OutputSize(const SpatialWindow& window,
                                           int axis, Dim input);

// The window with the pads that auto_pad stands for; `input` holds the spatial
// sizes.
WEIR_EXPORT SpatialWindow ResolvePads(const SpatialWindow& window,
                                      absl::Span<const int64_t> input);

// One spatial axis of an input and of the output, with the windows along it.
struct SpatialAxis {
  int64_t in = 1;
  int64_t out = 1;
  WindowAxis window;
};
// Of shapes N x C x spatial, the last axis last: those that they do not have,
// in front, are of one element.
using SpatialAxes = std::array<SpatialAxis, kMaxSpatialRank>;
WEIR_EXPORT SpatialAxes SpatialAxesOf(const SpatialWindow& window,
                                      const Dims& in, const Dims& out);

}  // namespace weir
