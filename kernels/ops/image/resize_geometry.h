// Where each pixel of a resized picture comes from: sizes, scales and filter
// weights, following DALI's Resize. Shared by the CPU and CUDA kernels. Pure
// functions over doubles, callable from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"

namespace weir::image {

// Exactly one way to give the size: x and/or y, shorter, or longer; all zero
// keeps the picture's size. A side left at 0 beside a given one keeps the
// aspect ratio; a negative value mirrors that side (shorter, longer: both).
struct ResizeSize {
  double x = 0;
  double y = 0;
  double shorter = 0;
  double longer = 0;
};

// Output pixel i is the filter around source coordinate
// origin + (i + 0.5) * step, where source pixel k has its center at k + 0.5.
struct AxisGeometry {
  int64_t in_size = 0;
  int64_t out_size = 0;
  double origin = 0;
  double step = 1;  // negative: mirrored
};

struct ResizeGeometry {
  AxisGeometry y;
  AxisGeometry x;
};

// The largest side of a picture that is resized, before and after.
inline constexpr int64_t kMaxResizedSide = 65536;

// A fractional size (640 x 480 to a shorter side of 256 is 341.33 x 256) keeps
// its exact scale: the output is rounded, and the source region grows or
// shrinks about its center with it. INVALID_ARGUMENT for an empty picture, two
// ways of giving the size, or a side over kMaxResizedSide.
WEIR_EXPORT absl::StatusOr<ResizeGeometry> MakeResizeGeometry(
    int64_t in_height, int64_t in_width, const ResizeSize& size);

enum class Interpolation { kNearest, kLinear };

struct ResizeFilter {
  Interpolation interpolation = Interpolation::kLinear;
  // Linear only: stretches the triangle over all source pixels that an output
  // pixel covers when shrinking.
  bool antialias = true;
};

// A part of the output, [begin, end).
struct AxisWindow {
  int64_t begin = 0;
  int64_t end = 0;
};

// Output pixel `window.begin + i` is the sum over t < taps of
// weights[i * taps + t] * source[first[i] + t]. The edge pixel is repeated by
// adding the weights that fall outside to it, so that every index is inside
// the source. Nearest has one tap of weight 1. A tap of weight 0 is not to be
// multiplied with a source that may be infinite or NaN.
struct AxisWeights {
  int64_t taps = 0;
  std::vector<int64_t> first;
  std::vector<float> weights;

  int64_t size() const { return static_cast<int64_t>(first.size()); }
  int64_t bytes() const {
    return size() * (static_cast<int64_t>(sizeof(int64_t)) +
                     taps * static_cast<int64_t>(sizeof(float)));
  }
};

// The taps of each output pixel.
WEIR_EXPORT int64_t TapsOf(const AxisGeometry& axis,
                           const ResizeFilter& filter);

// `window` lies inside [0, axis.out_size).
WEIR_EXPORT AxisWeights MakeAxisWeights(const AxisGeometry& axis,
                                        const ResizeFilter& filter,
                                        AxisWindow window);

}  // namespace weir::image
