// What every chunk of a PNG must have, whoever reads it. Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir::image {

inline constexpr uint32_t kMaxPngChunkBytes = (uint32_t{1} << 31) - 1;

// `type` as a number, its first letter in the highest byte. INVALID_ARGUMENT
// unless there may be a chunk of that length and type.
inline absl::Status CheckPngChunk(uint32_t length, uint32_t type) {
  if (length > kMaxPngChunkBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("PNG has a chunk of ", length, " bytes; ",
                     kMaxPngChunkBytes, " are the most"));
  }
  for (int shift = 0; shift < 32; shift += 8) {
    const uint32_t lower = (type >> shift & 0xFF) | 0x20;
    if (lower < 'a' || lower > 'z') {
      return absl::InvalidArgumentError(
          "PNG has a chunk whose type is not four letters");
    }
  }
  return absl::OkStatus();
}

}  // namespace weir::image
