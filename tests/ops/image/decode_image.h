// Decodes a file as DecodeImage the operator does: header, room, pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/image/decode.h"
#include "kernels/ops/image/image_header.h"

namespace weir::image {

// HWC, 3 channels.
struct DecodedImage {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;
};

inline absl::StatusOr<DecodedImage> DecodeImage(
    std::span<const std::byte> file, const ImageLimits& limits = {}) {
  WEIR_ASSIGN_OR_RETURN(const ImageInfo info, PeekImage(file, limits));
  DecodedImage image;
  image.height = info.UprightHeight();
  image.width = info.UprightWidth();
  image.pixels.resize(static_cast<size_t>(image.height * image.width * 3));
  WEIR_RETURN_IF_ERROR(DecodeImageInto(file, info, image.pixels));
  return image;
}

}  // namespace weir::image
