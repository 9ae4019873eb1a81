#include "kernels/ops/image/orientation.h"

#include <algorithm>
#include <cstring>

namespace weir::image {

void ApplyOrientation(ImageView<const uint8_t> stored, Orientation orientation,
                      ImageView<uint8_t> upright) {
  constexpr int64_t kPixel = 3;
  // The place of the stored pixel (0, 0), and the steps in `upright` for one
  // step to the right and one step down in `stored`.
  const int64_t right_end = (upright.width - 1) * kPixel;
  const int64_t bottom_end = (upright.height - 1) * upright.row_stride;
  const int64_t row = upright.row_stride;
  int64_t start = 0;
  int64_t step_x = kPixel;
  int64_t step_y = row;
  switch (orientation) {
    case Orientation::kUpright:
      break;
    case Orientation::kMirrored:
      start = right_end, step_x = -kPixel;
      break;
    case Orientation::kUpsideDown:
      start = right_end + bottom_end, step_x = -kPixel, step_y = -row;
      break;
    case Orientation::kUpsideDownMirrored:
      start = bottom_end, step_y = -row;
      break;
    case Orientation::kTransposed:
      step_x = row, step_y = kPixel;
      break;
    case Orientation::kTurnRight:
      start = right_end, step_x = row, step_y = -kPixel;
      break;
    case Orientation::kTransverse:
      start = right_end + bottom_end, step_x = -row, step_y = -kPixel;
      break;
    case Orientation::kTurnLeft:
      start = bottom_end, step_x = -row, step_y = kPixel;
      break;
  }
  // Tiles keep both sides of a transposition in the cache.
  constexpr int64_t kTile = 32;
  for (int64_t y0 = 0; y0 < stored.height; y0 += kTile) {
    const int64_t y1 = std::min(y0 + kTile, stored.height);
    for (int64_t x0 = 0; x0 < stored.width; x0 += kTile) {
      const int64_t x1 = std::min(x0 + kTile, stored.width);
      for (int64_t y = y0; y < y1; ++y) {
        const uint8_t* from = stored.Row(y) + x0 * kPixel;
        uint8_t* to = upright.data + start + y * step_y + x0 * step_x;
        for (int64_t x = x0; x < x1; ++x, from += kPixel, to += step_x) {
          std::memcpy(to, from, kPixel);
        }
      }
    }
  }
}

}  // namespace weir::image
