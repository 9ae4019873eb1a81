// Makes the files and pixels that the image tests read: encoders with the
// options that matter to a decoder, and smooth pictures that JPEG keeps.
// Functions abort on failure; they run in tests only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weir::image {

using Bytes = std::vector<std::byte>;

// HWC pixels of a picture without sharp edges, different in every channel.
std::vector<uint8_t> SmoothPicture(int64_t height, int64_t width,
                                   int64_t channels);

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  bool arithmetic = false;
  bool subsampled = false;  // 4:2:0
  // Of three channels: as many samples of each component stand side by side
  // where the others have theirs.
  std::array<int, 3> across = {1, 1, 1};
  bool scan_for_each = false;  // component; not progressive
  int orientation = 0;         // 0: no EXIF block
  bool little_endian_exif = true;
  // Of three channels: stored as they are, not as YCbCr; and what tells so.
  bool rgb = false;
  bool jfif_marker = false;
  bool adobe_marker = true;
  bool named_components = true;  // 'R', 'G', 'B', not 1, 2, 3
};

// `channels`: 1 grey, 3 RGB, 4 CMYK as Adobe writes it (inverted).
Bytes EncodeJpeg(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                 int64_t channels, const JpegOptions& options = {});

struct PngOptions {
  int color_type = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGBA
  int bit_depth = 8;
  bool interlaced = false;
  int orientation = 0;            // 0: no eXIf chunk
  bool exif_past_pixels = false;  // and not before them
  int palette_entries = 256;      // or as many as the depth counts if fewer
  size_t chunk_bytes = size_t{1} << 30;  // of pixels, in one chunk
};

// `samples`: one per stored sample, row by row; 16-bit ones in full. A palette
// picture gets the palette entry i = (i, 255 - i, i / 2).
Bytes EncodePng(std::span<const uint16_t> samples, int64_t height,
                int64_t width, const PngOptions& options = {});

// Where the markers of a JPEG stand, without those inside of its scans' data.
std::vector<size_t> MarkersOf(const Bytes& jpeg);

// What libjpeg takes the three channels of a JPEG for.
bool IsRgbToLibjpeg(const Bytes& jpeg);

// A PNG or JPEG whose header claims this size and that holds next to nothing.
Bytes PngClaiming(uint32_t height, uint32_t width);
Bytes JpegClaiming(uint16_t height, uint16_t width);

}  // namespace weir::image
