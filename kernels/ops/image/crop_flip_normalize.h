// Crop, Flip and Normalize on HWC pictures as DALI defines them, and the three
// fused into planar float32, the form that image models take. Pure functions,
// callable from any thread; source and target must not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/image/image_view.h"

namespace weir::image {

// Where a crop of `crop` pixels begins on a side of `size`: `position` 0 is
// flush with the beginning, 1 with the end; (size - crop) * position, ties up.
// INVALID_ARGUMENT if the crop is empty or larger than the side, or the
// position outside [0, 1].
WEIR_EXPORT absl::StatusOr<int64_t> CropAnchor(int64_t size, int64_t crop,
                                               double position);

// Copies `in` to `out`, optionally with columns and rows reversed; a crop is a
// flip of a view. Elements of any type: channels counts bytes.
WEIR_EXPORT void FlipPixels(ImageView<const uint8_t> in, bool horizontal,
                            bool vertical, ImageView<uint8_t> out);

// (x - mean) / stddev * scale + shift, per channel; mean and stddev hold one
// value or one for each channel.
struct Normalization {
  std::span<const float> mean;
  std::span<const float> stddev;
  float scale = 1;
  float shift = 0;
};

// INVALID_ARGUMENT if mean or stddev fit neither 1 nor `channels`, or a stddev
// is zero or not finite, or scale / stddev is not.
WEIR_EXPORT absl::Status CheckNormalization(const Normalization& normalization,
                                            int64_t channels);

// T is uint8_t or float. `normalization` has been checked. The layout stays
// HWC.
template <typename T>
WEIR_EXPORT void Normalize(ImageView<const T> in,
                           const Normalization& normalization,
                           ImageView<float> out);

// A plane of floats for each channel, or a part of each, in somebody else's
// memory.
struct PlanesView {
  float* data = nullptr;
  int64_t plane_stride = 0;  // in elements
  int64_t row_stride = 0;
};

// The same into planes of the picture's height and width. Cropping is a matter
// of the view.
template <typename T>
WEIR_EXPORT void MirrorNormalizeToPlanes(ImageView<const T> in, bool horizontal,
                                         bool vertical,
                                         const Normalization& normalization,
                                         PlanesView planes);

}  // namespace weir::image
