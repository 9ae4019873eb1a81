// PNG to RGB over libspng, without the orientation. Pure, callable from any
// thread; use decode.h unless the stored orientation is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/ops/image/image_header.h"
#include "kernels/ops/image/image_view.h"

namespace weir::image {

// Memory that DecodePng takes beside its arguments, at most.
int64_t PngDecoderBytes(const ImageInfo& info);

// `pixels` is dense, 3 channels, of the size that PeekImage told.
absl::Status DecodePng(std::span<const std::byte> file,
                       ImageView<uint8_t> pixels);

}  // namespace weir::image
