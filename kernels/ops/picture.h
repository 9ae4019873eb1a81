// What the attributes of weir.Resize, Crop, Flip and Normalize say, read once
// for the kernels of both devices. Pictures are HWC, or NHWC for several of one
// size. Pure functions; errors are INVALID_ARGUMENT and name the attribute.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/ops/image/resize_geometry.h"
#include "kernels/ops/op.h"

namespace weir {

struct PictureShape {
  int64_t count = 1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;

  int64_t row() const { return width * channels; }
  int64_t picture() const { return height * row(); }
};

// REQUIRES: 3 or 4 dims, as inference has checked.
WEIR_EXPORT PictureShape PictureShapeOf(absl::Span<const int64_t> dims);

WEIR_EXPORT absl::StatusOr<image::ResizeFilter> ResizeFilterOf(
    const NodeInfo& node);
WEIR_EXPORT absl::StatusOr<image::ResizeGeometry> ResizeGeometryOf(
    const NodeInfo& node, int64_t height, int64_t width);

struct CropWindow {
  image::AxisWindow y;
  image::AxisWindow x;
};
WEIR_EXPORT absl::StatusOr<CropWindow> CropWindowOf(const NodeInfo& node,
                                                    int64_t height,
                                                    int64_t width);

// A flag of Flip: an attribute, or a tensor of one value or one per picture.
struct FlipFlag {
  bool value = false;  // of the attribute
  size_t input = 0;    // 0: the attribute
  DType dtype = DType::kBool;
  bool per_picture = false;
};
struct FlipFlags {
  FlipFlag horizontal;
  FlipFlag vertical;
};
WEIR_EXPORT FlipFlags FlipFlagsOf(const NodeInfo& node, const PlanArgs& args);

// out = (x - mean) / stddev * scale + shift; mean and stddev hold one value or
// one per channel (checked if `channels` is known).
struct NormalizeSettings {
  std::vector<float> mean;
  std::vector<float> stddev;
  float scale = 1;
  float shift = 0;
  bool planes = false;  // output_layout CHW
  DType dtype = DType::kFloat;
};
WEIR_EXPORT absl::StatusOr<NormalizeSettings> NormalizeSettingsOf(
    const NodeInfo& node, Dim channels);

}  // namespace weir
