#include "kernels/ops/image/image_header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/image/png_chunk.h"

namespace weir::image {
namespace {

// Reads of a fixed width; nothing where the bytes end. After a failed read the
// position is at the end, so that a loop over reads stops.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes,
                      bool little_endian = false)
      : bytes_(bytes), little_endian_(little_endian) {}

  bool AtEnd() const { return position_ >= bytes_.size(); }
  size_t Position() const { return position_; }

  std::optional<uint8_t> U8() {
    std::optional<uint32_t> value = Unsigned(1);
    if (!value) return std::nullopt;
    return static_cast<uint8_t>(*value);
  }
  std::optional<uint16_t> U16() {
    std::optional<uint32_t> value = Unsigned(2);
    if (!value) return std::nullopt;
    return static_cast<uint16_t>(*value);
  }
  std::optional<uint32_t> U32() { return Unsigned(4); }

  std::optional<std::span<const std::byte>> Bytes(size_t count) {
    if (count > bytes_.size() - position_) {
      position_ = bytes_.size();
      return std::nullopt;
    }
    std::span<const std::byte> taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

 private:
  std::optional<uint32_t> Unsigned(size_t width) {
    std::optional<std::span<const std::byte>> taken = Bytes(width);
    if (!taken) return std::nullopt;
    uint32_t value = 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t at = little_endian_ ? width - 1 - i : i;
      value = value << 8 | std::to_integer<uint32_t>((*taken)[at]);
    }
    return value;
  }

  std::span<const std::byte> bytes_;
  bool little_endian_;
  size_t position_ = 0;
};

bool StartsWith(std::span<const std::byte> bytes,
                std::span<const uint8_t> prefix) {
  return bytes.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), bytes.begin(),
                    [](uint8_t a, std::byte b) { return std::byte{a} == b; });
}

constexpr std::array<uint8_t, 2> kJpegStart = {0xFF, 0xD8};
constexpr std::array<uint8_t, 8> kPngStart = {0x89, 'P',  'N',  'G',
                                              '\r', '\n', 0x1A, '\n'};
constexpr std::array<uint8_t, 6> kExifStart = {'E', 'x', 'i', 'f', 0, 0};
constexpr std::array<uint8_t, 5> kJfifStart = {'J', 'F', 'I', 'F', 0};
constexpr std::array<uint8_t, 5> kAdobeStart = {'A', 'd', 'o', 'b', 'e'};

// How far a header is looked for: it is read in a thread that has other calls
// to answer, before anything is known of the picture's size. Pictures with all
// that cameras and editors add to them stay far below.
constexpr int kMaxSegments = 4096;
constexpr int64_t kMaxFillBytes = 4096;
// In all, of a PNG: encoders put some kilobytes of pixels into a chunk.
constexpr int kMaxChunks = 65536;
constexpr int kMaxTiffEntries = 1024;

absl::Status TooFar(std::string_view format, int64_t limit,
                    std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      AbslView(format), " has more than ", limit, " ", AbslView(what)));
}

absl::Status Truncated(std::string_view format, std::string_view where) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(format), " data ends inside ", AbslView(where)));
}

// A broken EXIF block is no reason to refuse a picture: upright. Adds the
// entries that it reads to `parts`.
Orientation OrientationFromTiff(std::span<const std::byte> tiff,
                                int64_t& parts) {
  constexpr std::array<uint8_t, 4> kLittle = {'I', 'I', 42, 0};
  constexpr std::array<uint8_t, 4> kBig = {'M', 'M', 0, 42};
  constexpr uint16_t kOrientationTag = 0x0112;
  constexpr uint16_t kShortType = 3;
  const bool little = StartsWith(tiff, kLittle);
  if (!little && !StartsWith(tiff, kBig)) return Orientation::kUpright;

  ByteReader header(tiff.subspan(4), little);
  const std::optional<uint32_t> directory = header.U32();
  if (!directory || *directory > tiff.size()) return Orientation::kUpright;
  ByteReader reader(tiff.subspan(*directory), little);
  const std::optional<uint16_t> entries = reader.U16();
  for (uint16_t i = 0;
       entries && i < std::min<int>(*entries, kMaxTiffEntries) &&
       !reader.AtEnd();
       ++i) {
    ++parts;
    const std::optional<uint16_t> tag = reader.U16();
    const std::optional<uint16_t> type = reader.U16();
    const std::optional<uint32_t> count = reader.U32();
    const std::optional<uint16_t> value = reader.U16();
    reader.U16();
    if (!tag || *tag != kOrientationTag) continue;
    if (!value || *type != kShortType || *count != 1 || *value < 1 ||
        *value > 8) {
      return Orientation::kUpright;
    }
    return static_cast<Orientation>(*value);
  }
  return Orientation::kUpright;
}

absl::Status CheckLimits(const ImageInfo& info, const ImageLimits& limits) {
  if (info.width <= 0 || info.height <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "picture of ", info.width, " x ", info.height, " has no pixels"));
  }
  if (info.width > limits.max_side || info.height > limits.max_side ||
      info.width > limits.max_pixels / info.height) {
    return WithReason(absl::InvalidArgumentError(absl::StrCat(
                          "picture claims ", info.width, " x ", info.height,
                          " pixels; the limit is ", limits.max_side,
                          " per side and ", limits.max_pixels, " in all")),
                      "PICTURE_TOO_LARGE");
  }
  return absl::OkStatus();
}

absl::Status CheckFileSize(const ImageInfo& info, int64_t least, size_t have) {
  if (least <= static_cast<int64_t>(have)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("picture claims ", info.width, " x ", info.height,
                   " pixels, which ", have, " bytes cannot hold"));
}

// SOF0 to SOF15, without the three codes in that range that are no frames.
bool IsStartOfFrame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 &&
         marker != 0xCC;
}

// What says which colors three components are, as libjpeg takes it: there is no
// one place for it.
class JpegColors {
 public:
  void TakeSegment(uint8_t marker, std::span<const std::byte> segment) {
    constexpr size_t kJfifBytes = 14, kAdobeBytes = 12;
    if (marker == 0xE0 && segment.size() >= kJfifBytes) {
      jfif_ = jfif_ || StartsWith(segment, kJfifStart);
    }
    if (marker == 0xEE && segment.size() >= kAdobeBytes &&
        StartsWith(segment, kAdobeStart)) {
      adobe_ = std::to_integer<uint8_t>(segment[kAdobeBytes - 1]);
    }
  }
  void TakeComponents(std::span<const std::byte> names) {
    constexpr size_t kBytes = 3;  // of each: its name, and what it is coded by
    constexpr std::array<uint8_t, 3> kRgb = {'R', 'G', 'B'};
    named_rgb_ = names.size() >= kBytes * kRgb.size();
    for (size_t i = 0; named_rgb_ && i < kRgb.size(); ++i) {
      named_rgb_ = names[kBytes * i] == std::byte{kRgb[i]};
    }
  }

  bool rgb() const {
    if (jfif_) return false;
    return adobe_.has_value() ? *adobe_ == 0 : named_rgb_;
  }

 private:
  bool jfif_ = false;
  std::optional<uint8_t> adobe_;  // its transform
  bool named_rgb_ = false;
};

absl::Status ReadFrame(uint8_t marker, std::span<const std::byte> segment,
                       ImageInfo& info, JpegColors& colors) {
  ByteReader reader(segment);
  const std::optional<uint8_t> precision = reader.U8();
  const std::optional<uint16_t> height = reader.U16();
  const std::optional<uint16_t> width = reader.U16();
  const std::optional<uint8_t> components = reader.U8();
  if (!components) return Truncated("JPEG", "its frame header");
  // Baseline, extended and progressive. Where arithmetic coding is cut, any
  // pixels may follow, and no decoder can tell.
  if (marker > 0xC2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "JPEG process SOF", marker - 0xC0,
        " (lossless, hierarchical or arithmetic) is not supported"));
  }
  if (*precision != 8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "JPEG with ", *precision, " bits per sample; only 8 are supported"));
  }
  if (*components != 1 && *components != 3 && *components != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("JPEG with ", *components, " color components"));
  }
  info.width = *width;
  info.height = *height;
  info.channels = *components;
  info.bit_depth = *precision;
  colors.TakeComponents(segment.subspan(reader.Position()));
  return absl::OkStatus();
}

absl::StatusOr<ImageInfo> PeekJpeg(std::span<const std::byte> file,
                                   const ImageLimits& limits) {
  ImageInfo info;
  info.format = ImageFormat::kJpeg;
  bool seen_frame = false;
  bool seen_exif = false;
  JpegColors colors;
  ByteReader reader(file);
  reader.Bytes(kJpegStart.size());
  int64_t filled = 0;
  for (int segments = 0;; ++segments) {
    if (segments == kMaxSegments) {
      return TooFar("JPEG", kMaxSegments, "segments before its picture");
    }
    // Between segments, as every decoder does: skip to the next marker.
    std::optional<uint8_t> byte = reader.U8();
    const auto skip = [&] {
      byte = ++filled > kMaxFillBytes ? std::nullopt : reader.U8();
    };
    while (byte && *byte != 0xFF) skip();
    // The first of them belongs to the marker.
    if (byte) byte = reader.U8();
    while (byte && *byte == 0xFF) skip();
    if (filled > kMaxFillBytes) {
      return TooFar("JPEG", kMaxFillBytes,
                    "bytes of filling before its picture");
    }
    if (!byte) return Truncated("JPEG", "its headers");
    const uint8_t marker = *byte;
    const bool has_no_length =
        marker == 0x00 || marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7);
    if (has_no_length) continue;
    if (marker == 0xD9) {
      return absl::InvalidArgumentError("JPEG ends without a picture");
    }
    if (marker == 0xD8) {
      return absl::InvalidArgumentError("JPEG starts a second time");
    }
    const std::optional<uint16_t> length = reader.U16();
    if (!length) return Truncated("JPEG", "its headers");
    if (*length < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("JPEG segment at byte ", reader.Position() - 2,
                       " claims a length of ", *length));
    }
    const std::optional<std::span<const std::byte>> segment =
        reader.Bytes(*length - 2u);
    if (!segment) return Truncated("JPEG", "its headers");
    colors.TakeSegment(marker, *segment);
    if (IsStartOfFrame(marker)) {
      if (seen_frame) {
        return absl::InvalidArgumentError("JPEG has two frame headers");
      }
      seen_frame = true;
      WEIR_RETURN_IF_ERROR(ReadFrame(marker, *segment, info, colors));
      WEIR_RETURN_IF_ERROR(CheckLimits(info, limits));
      info.several_scans = marker == 0xC2;
      // Huffman coding spends at least one bit on each 8 x 8 block.
      WEIR_RETURN_IF_ERROR(
          CheckFileSize(info, info.width * info.height / 512, file.size()));
    } else if (marker == 0xE1 && !seen_exif &&
               StartsWith(*segment, kExifStart)) {
      seen_exif = true;
      info.orientation = OrientationFromTiff(
          segment->subspan(kExifStart.size()), info.header_parts);
    } else if (marker == 0xDA) {
      if (!seen_frame) {
        return absl::InvalidArgumentError(
            "JPEG starts a scan before its frame header");
      }
      if (!segment->empty() &&
          std::to_integer<int>((*segment)[0]) < info.channels) {
        info.several_scans = true;
      }
      info.stored_rgb = info.channels == 3 && colors.rgb();
      info.header_parts += segments + filled;
      return info;
    }
  }
}

struct PngColor {
  int channels;
  int samples;  // stored per pixel
};

absl::StatusOr<PngColor> ColorOfPng(int type, int depth) {
  const bool power = depth == 1 || depth == 2 || depth == 4 || depth == 8;
  const bool wide = depth == 8 || depth == 16;
  if (type == 0 && (power || wide)) return PngColor{1, 1};
  if (type == 2 && wide) return PngColor{3, 3};
  if (type == 3 && power) return PngColor{3, 1};
  if (type == 4 && wide) return PngColor{2, 2};
  if (type == 6 && wide) return PngColor{4, 4};
  return absl::InvalidArgumentError(absl::StrCat(
      "PNG color type ", type, " with bit depth ", depth, " does not exist"));
}

constexpr uint32_t ChunkType(const char (&name)[5]) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<uint8_t>(name[i]);
  }
  return value;
}

// Counts the chunks from where the pixels begin, with one of `length`, which a
// decoder will go through, and unless it is known looks for the orientation
// past them: behind `reader`, in a file that had so many `chunks` until there.
// What is cut off or malformed from there on is the decoder's to refuse.
absl::Status PeekPngPixels(ByteReader reader, uint32_t length, int chunks,
                           bool seen_exif, ImageInfo& info) {
  bool exif = false;
  for (;; ++chunks) {
    if (chunks == kMaxChunks) return TooFar("PNG", kMaxChunks, "chunks");
    const std::optional<std::span<const std::byte>> chunk =
        reader.Bytes(length);
    if (!chunk || !reader.U32()) return absl::OkStatus();
    ++info.header_parts;
    if (exif && !seen_exif) {
      seen_exif = true;
      info.orientation = OrientationFromTiff(*chunk, info.header_parts);
    }
    const std::optional<uint32_t> next = reader.U32();
    const std::optional<uint32_t> type = reader.U32();
    if (!type || *type == ChunkType("IEND") ||
        !CheckPngChunk(*next, *type).ok()) {
      return absl::OkStatus();
    }
    length = *next;
    exif = *type == ChunkType("eXIf");
  }
}

absl::StatusOr<ImageInfo> PeekPng(std::span<const std::byte> file,
                                  const ImageLimits& limits) {
  // Deflate reaches at most 1032 bytes for one.
  constexpr int64_t kDeflateRatio = 1032;
  ImageInfo info;
  info.format = ImageFormat::kPng;
  ByteReader reader(file);
  reader.Bytes(kPngStart.size());
  bool seen_exif = false;
  for (int chunks = 0;; ++chunks) {
    const bool first = chunks == 0;
    if (chunks == kMaxSegments) {
      return TooFar("PNG", kMaxSegments, "chunks before its picture");
    }
    const std::optional<uint32_t> length = reader.U32();
    const std::optional<uint32_t> type = reader.U32();
    if (!type) return Truncated("PNG", "its headers");
    WEIR_RETURN_IF_ERROR(CheckPngChunk(*length, *type));
    if (first && (*type != ChunkType("IHDR") || *length != 13)) {
      return absl::InvalidArgumentError("PNG does not begin with its header");
    }
    if (*type == ChunkType("IDAT")) {
      info.header_parts += chunks;
      WEIR_RETURN_IF_ERROR(
          PeekPngPixels(reader, *length, chunks, seen_exif, info));
      return info;
    }
    if (*type == ChunkType("IEND")) {
      return absl::InvalidArgumentError("PNG ends without a picture");
    }
    const std::optional<std::span<const std::byte>> chunk =
        reader.Bytes(*length);
    const std::optional<uint32_t> checksum = reader.U32();
    if (!chunk || !checksum) return Truncated("PNG", "its headers");
    if (first) {
      ByteReader header(*chunk);
      info.width = *header.U32();
      info.height = *header.U32();
      info.bit_depth = *header.U8();
      WEIR_ASSIGN_OR_RETURN(const PngColor color,
                            ColorOfPng(*header.U8(), info.bit_depth));
      info.channels = color.channels;
      WEIR_RETURN_IF_ERROR(CheckLimits(info, limits));
      const int64_t row_bytes =
          (info.width * info.bit_depth * color.samples + 7) / 8;
      WEIR_RETURN_IF_ERROR(CheckFileSize(
          info, row_bytes * info.height / kDeflateRatio, file.size()));
    } else if (*type == ChunkType("eXIf") && !seen_exif) {
      seen_exif = true;
      info.orientation = OrientationFromTiff(*chunk, info.header_parts);
    }
  }
}

}  // namespace

absl::StatusOr<ImageInfo> PeekImage(std::span<const std::byte> file,
                                    const ImageLimits& limits) {
  if (file.empty()) {
    return absl::InvalidArgumentError("picture has no bytes");
  }
  if (StartsWith(file, kJpegStart)) return PeekJpeg(file, limits);
  if (StartsWith(file, kPngStart)) return PeekPng(file, limits);
  const size_t known = std::min(file.size(), kPngStart.size());
  if (StartsWith(file, std::span(kPngStart).first(known)) ||
      (known == 1 && file[0] == std::byte{kJpegStart[0]})) {
    return Truncated("picture", "its signature");
  }
  return absl::InvalidArgumentError("picture is neither JPEG nor PNG");
}

}  // namespace weir::image
