// JPEG to RGB over libjpeg-turbo, without the orientation. Pure, callable from
// any thread; use decode.h unless the stored orientation is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/ops/image/image_view.h"

namespace weir::image {

// `pixels` is dense, 3 channels, of the size that PeekImage told.
absl::Status DecodeJpeg(std::span<const std::byte> file,
                        ImageView<uint8_t> pixels);

}  // namespace weir::image
