// Any bytes either decode or are refused with INVALID_ARGUMENT; what the header
// promised is what the decoder delivers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "kernels/ops/image/image_header.h"
#include "tests/ops/image/decode_image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using weir::image::DecodeImage;
  using weir::image::PeekImage;
  // Small pictures find the same bugs in less time.
  constexpr weir::image::ImageLimits kLimits = {.max_side = 512,
                                                .max_pixels = 1 << 16};
  const auto file = std::as_bytes(std::span(data, size));
  const auto info = PeekImage(file, kLimits);
  const auto image = DecodeImage(file, kLimits);
  if (!image.ok()) {
    if (image.status().code() != absl::StatusCode::kInvalidArgument) {
      std::abort();
    }
    return 0;
  }
  if (!info.ok() || info->UprightWidth() != image->width ||
      info->UprightHeight() != image->height ||
      image->pixels.size() !=
          static_cast<size_t>(image->width * image->height * 3)) {
    std::abort();
  }
  return 0;
}
