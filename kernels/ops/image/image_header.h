// What a JPEG or PNG file says about itself, read without decoding and without
// allocating. Pure functions, callable from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"

namespace weir::image {

enum class ImageFormat { kJpeg, kPng };

// The EXIF tag 0x0112: how the stored picture must be turned to stand upright.
enum class Orientation : uint8_t {
  kUpright = 1,
  kMirrored = 2,            // left and right swapped
  kUpsideDown = 3,          // half a turn
  kUpsideDownMirrored = 4,  // top and bottom swapped
  kTransposed = 5,          // mirrored along the main diagonal
  kTurnRight = 6,           // needs a quarter turn clockwise
  kTransverse = 7,          // mirrored along the other diagonal
  kTurnLeft = 8,            // needs a quarter turn counter-clockwise
};

// Refuses pictures whose pixels would not fit a request; 64 Mpixel are 192 MiB
// of RGB, below the default message limit of 256 MiB.
struct ImageLimits {
  int64_t max_side = 16384;
  int64_t max_pixels = int64_t{64} << 20;
};

struct ImageInfo {
  ImageFormat format = ImageFormat::kJpeg;
  int64_t width = 0;   // as stored, before the orientation is applied
  int64_t height = 0;  // as stored
  int channels = 0;    // as stored: 1 to 4, a palette counts as 3
  int bit_depth = 8;
  // JPEG: progressive, or a scan for each color. Decoders keep all of it.
  bool several_scans = false;
  // JPEG: its three channels are red, green and blue, not YCbCr, as its markers
  // or else the names of its components tell.
  bool stored_rgb = false;
  Orientation orientation = Orientation::kUpright;
  // Segments (chunks), bytes between them and EXIF entries that were read to
  // know all this, each in some nanoseconds.
  int64_t header_parts = 0;

  // Gray or YCbCr: not all decoders know CMYK, nor RGB that is stored as such.
  bool IsPlainJpeg() const {
    return format == ImageFormat::kJpeg && channels != 4 && !stored_rgb;
  }
  bool SwapsSides() const { return orientation >= Orientation::kTransposed; }
  int64_t UprightWidth() const { return SwapsSides() ? height : width; }
  int64_t UprightHeight() const { return SwapsSides() ? width : height; }
};

// `file` is the whole file. INVALID_ARGUMENT, with the cause, when it is not a
// JPEG or PNG, ends inside its headers, has more than 4096 segments (chunks) or
// 4096 bytes of filling before its picture, exceeds `limits` (with the reason
// PICTURE_TOO_LARGE), or is too short to hold as many pixels as it claims by
// any encoding; also when a PNG has more than 65536 chunks before its end.
WEIR_EXPORT absl::StatusOr<ImageInfo> PeekImage(std::span<const std::byte> file,
                                                const ImageLimits& limits = {});

}  // namespace weir::image
