// A picture in somebody else's memory: rows of interleaved channels (HWC).
// Rows may be further apart than they are long, so that a crop is a view too.
// Owns nothing; copying a view copies no pixels.
#pragma once

#include <cstdint>

namespace weir::image {

template <typename T>
struct ImageView {
  T* data = nullptr;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int64_t row_stride = 0;  // in elements, at least width * channels

  T* Row(int64_t y) const { return data + y * row_stride; }
};

// A view of rows that follow each other without a gap.
template <typename T>
ImageView<T> DenseView(T* data, int64_t height, int64_t width,
                       int64_t channels) {
  return {data, height, width, channels, width * channels};
}

}  // namespace weir::image
