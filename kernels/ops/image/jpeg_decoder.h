// JPEG to RGB over libjpeg-turbo, without the orientation. Pure, callable from
// any thread; use decode.h unless the stored orientation is wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/ops/image/image_header.h"
#include "kernels/ops/image/image_view.h"

namespace weir::image {

// Memory that DecodeJpeg takes beside its arguments, at most.
int64_t JpegDecoderBytes(const ImageInfo& info);

// `pixels` is dense, 3 channels, of the size that PeekImage told. CANCELLED
// once `given_up`, which is asked every some rows of each scan, says so.
absl::Status DecodeJpeg(std::span<const std::byte> file,
                        ImageView<uint8_t> pixels,
                        absl::FunctionRef<bool()> given_up);

// INVALID_ARGUMENT for what DecodeJpeg refuses and other decoders do not look
// at: data that ends early, more scans than a file may have, and a component
// without any. What follows the end is not read.
WEIR_EXPORT absl::Status CheckJpegScans(std::span<const std::byte> file);

}  // namespace weir::image
