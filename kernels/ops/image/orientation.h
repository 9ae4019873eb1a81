// Turns a decoded picture upright. Pure, callable from any thread.
#pragma once

#include <cstdint>

#include "kernels/base/export.h"
#include "kernels/ops/image/image_header.h"
#include "kernels/ops/image/image_view.h"

namespace weir::image {

// Writes `stored`, turned as `orientation` asks, to `upright`, whose sides are
// swapped for the four orientations that transpose. 3 channels each; the two
// must not overlap.
WEIR_EXPORT void ApplyOrientation(ImageView<const uint8_t> stored,
                                  Orientation orientation,
                                  ImageView<uint8_t> upright);

}  // namespace weir::image
