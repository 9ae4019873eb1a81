// PNG to RGB over libspng, without the orientation. Pure, callable from any
// thread; use decode.h unless the stored orientation is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/ops/image/image_header.h"
#include "kernels/ops/image/image_view.h"

namespace weir::image {

// Memory that DecodePng takes beside its arguments, at most.
int64_t PngDecoderBytes(const ImageInfo& info);

// `pixels` is dense, 3 channels, of the size that PeekImage told. CANCELLED
// once `given_up` says so, asked every some kilobytes of the file. Of those
// that are not needed for pixels, length and type alone are read.
absl::Status DecodePng(std::span<const std::byte> file,
                       ImageView<uint8_t> pixels,
                       absl::FunctionRef<bool()> given_up);

}  // namespace weir::image
