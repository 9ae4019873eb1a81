// Resizes HWC pictures on the CPU: separable, vertical pass first, float32
// between the passes, vectorized for the processor it runs on. A plan is
// immutable and may be shared by threads; Resize() is pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/ops/image/image_view.h"
#include "kernels/ops/image/resize_geometry.h"

namespace weir::image {

class WEIR_EXPORT ResizePlan {
 public:
  // The whole resized picture.
  static ResizePlan Create(const ResizeGeometry& geometry,
                           const ResizeFilter& filter);

  // Some of its output rows; the tables are shared.
  // REQUIRES: 0 <= rows.begin < rows.end <= out_height().
  ResizePlan Rows(AxisWindow rows) const;

  int64_t in_height() const { return in_height_; }
  int64_t in_width() const { return in_width_; }
  int64_t out_height() const { return rows_.end - rows_.begin; }
  int64_t out_width() const { return x_->size(); }
  Interpolation interpolation() const { return interpolation_; }
  // Of the output rows [rows().begin, rows().end).
  const AxisWeights& y() const { return *y_; }
  AxisWindow rows() const { return rows_; }
  const AxisWeights& x() const { return *x_; }
  int64_t table_bytes() const { return y_->bytes() + x_->bytes(); }
  // The source columns that the output needs.
  AxisWindow source_columns() const { return source_columns_; }

  // Floats of scratch memory that Resize() uses for such a picture.
  int64_t ScratchFloats(int64_t channels) const;

 private:
  ResizePlan(const ResizeGeometry& geometry, const ResizeFilter& filter);

  int64_t in_height_;
  int64_t in_width_;
  Interpolation interpolation_;
  std::shared_ptr<const AxisWeights> y_;
  std::shared_ptr<const AxisWeights> x_;
  AxisWindow rows_;
  AxisWindow source_columns_;
};

// In and Out are uint8_t or float; uint8_t output is rounded half up and
// saturated. INVALID_ARGUMENT if the views or `scratch` do not fit the plan.
template <typename In, typename Out>
WEIR_EXPORT absl::Status Resize(const ResizePlan& plan, ImageView<const In> in,
                                ImageView<Out> out, std::span<float> scratch);

}  // namespace weir::image
