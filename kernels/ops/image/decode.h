// Decodes JPEG and PNG files to RGB pixels: grey is replicated, a palette is
// looked up, 16 bits are cut to 8, alpha is dropped, the EXIF orientation is
// applied. Data that ends early or is damaged is an error, never grey pixels; a
// progressive JPEG that ends between its scans is whole, and coarser.
// Pure functions, callable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/ops/image/image_header.h"

namespace weir::image {

// Memory that DecodeImageInto takes beside its arguments, at most.
WEIR_EXPORT int64_t DecoderBytes(const ImageInfo& info);

// HWC, 3 channels. `info` is what PeekImage said about `file`; `pixels` holds
// UprightHeight() x UprightWidth() x 3 bytes. CANCELLED once `given_up` says
// so, which is asked again and again.
WEIR_EXPORT absl::Status DecodeImageInto(
    std::span<const std::byte> file, const ImageInfo& info,
    std::span<uint8_t> pixels,
    absl::FunctionRef<bool()> given_up = [] { return false; });

}  // namespace weir::image
