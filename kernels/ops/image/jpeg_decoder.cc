#include "kernels/ops/image/jpeg_decoder.h"

// jpeglib.h uses FILE without including its header, jerror.h needs jpeglib.h.
// clang-format off
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <bitset>
#include <csetjmp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/device/device.h"

namespace weir::image {
namespace {

// libjpeg's own bookkeeping and, for progressive files, all coefficients: 2
// bytes a sample at up to 4 samples a pixel.
constexpr int64_t kMaxDecoderBytes = int64_t{640} << 20;
// A scan costs time over the whole picture for a few bytes of file.
constexpr int kMaxScans = 100;

// Of one scan, between two questions: a millisecond.
constexpr int64_t kPixelsBetween = 1 << 16;

struct Decoder {
  explicit Decoder(absl::FunctionRef<bool()> asked) : given_up(asked) {}

  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf on_error;
  const absl::FunctionRef<bool()> given_up;
  int64_t since_asked = 0;  // pixels
  bool ended = false;       // given up
  bool too_many_scans = false;
  bool created = false;
  char message[JMSG_LENGTH_MAX] = {};
  std::vector<uint8_t> cmyk_row;

  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() {
    if (created) jpeg_destroy_decompress(&info);
  }
};

Decoder& DecoderOf(j_common_ptr info) {
  return *static_cast<Decoder*>(info->client_data);
}

[[noreturn]] void Fail(j_common_ptr info) {
  Decoder& decoder = DecoderOf(info);
  info->err->format_message(info, decoder.message);
  std::longjmp(decoder.on_error, 1);
}

// Warnings that mean lost pixels are errors; the others are harmless oddities
// (bytes between segments, an unknown revision number).
void OnMessage(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION:
      Fail(info);
    default:
      return;
  }
}

// After each row of blocks that is read, and each row of pixels that is made.
void OnProgress(j_common_ptr info) {
  auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  Decoder& decoder = DecoderOf(info);
  decoder.too_many_scans = decompress->input_scan_number > kMaxScans;
  decoder.since_asked += int64_t{decompress->image_width} * DCTSIZE;
  if (decoder.since_asked >= kPixelsBetween) {
    decoder.since_asked = 0;
    decoder.ended = decoder.given_up();
  }
  if (decoder.too_many_scans || decoder.ended) {
    std::longjmp(decoder.on_error, 1);
  }
}

// Adobe writes CMYK inverted; its marker tells.
void CmykToRgb(const uint8_t* cmyk, bool inverted, int64_t width,
               uint8_t* rgb) {
  for (int64_t x = 0; x < width; ++x, cmyk += 4, rgb += 3) {
    const int key = inverted ? cmyk[3] : 255 - cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int ink = inverted ? cmyk[c] : 255 - cmyk[c];
      rgb[c] = static_cast<uint8_t>((ink * key + 127) / 255);
    }
  }
}

// Once its scans are read: a component has a table from its first one on, which
// of a progressive picture begins at the lowest frequency, or is refused.
bool LacksComponent(const jpeg_decompress_struct& info) {
  return std::any_of(info.comp_info, info.comp_info + info.num_components,
                     [](const jpeg_component_info& component) {
                       return component.quant_table == nullptr;
                     });
}

absl::Status NoScanOfComponent() {
  return absl::InvalidArgumentError(
      "the JPEG data has no scan of one of its color components");
}

enum class Outcome { kOk, kFailed, kWrongSize, kLacksComponent };

// No object with a destructor may live here: errors leave by longjmp.
Outcome Run(Decoder& decoder, std::span<const std::byte> file,
            const ImageView<uint8_t>& pixels) {
  if (setjmp(decoder.on_error) != 0) return Outcome::kFailed;
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  info.client_data = &decoder;
  decoder.errors.error_exit = Fail;
  decoder.errors.emit_message = OnMessage;
  jpeg_create_decompress(&info);
  decoder.created = true;
  info.client_data = &decoder;
  info.mem->max_memory_to_use = kMaxDecoderBytes;
  decoder.progress.progress_monitor = OnProgress;
  info.progress = &decoder.progress;

  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()),
               file.size());
  jpeg_read_header(&info, TRUE);
  if (int64_t{info.image_width} != pixels.width ||
      int64_t{info.image_height} != pixels.height) {
    return Outcome::kWrongSize;
  }
  const bool cmyk =
      info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  // Reads all scans, if they are several.
  jpeg_start_decompress(&info);
  if (LacksComponent(info)) return Outcome::kLacksComponent;
  while (info.output_scanline < info.output_height) {
    uint8_t* target = pixels.Row(info.output_scanline);
    uint8_t* row = cmyk ? decoder.cmyk_row.data() : target;
    if (jpeg_read_scanlines(&info, &row, 1) != 1) return Outcome::kFailed;
    if (cmyk) {
      CmykToRgb(row, info.saw_Adobe_marker != FALSE, pixels.width, target);
    }
  }
  // Reads on to the end marker, so that a missing tail is noticed.
  jpeg_finish_decompress(&info);
  return Outcome::kOk;
}

absl::Status TooManyScans() {
  return absl::InvalidArgumentError(
      absl::StrCat("JPEG has more than ", kMaxScans, " scans"));
}

int64_t RoundUp(int64_t side) {
  // 4 blocks of 8: what is subsampled most.
  constexpr int64_t kLargestUnit = 32;
  return (side + kLargestUnit - 1) / kLargestUnit * kLargestUnit;
}

}  // namespace

int64_t JpegDecoderBytes(const ImageInfo& info) {
  constexpr int64_t kTables = int64_t{1} << 20;
  // Of samples, on their way through the decoder.
  constexpr int64_t kRows = 256;
  const int64_t row = RoundUp(info.width) * info.channels;
  const int64_t coefficients =
      info.several_scans ? 2 * row * RoundUp(info.height) : 0;
  return std::min(kMaxDecoderBytes, kTables + kRows * row + coefficients);
}

// Walks from marker to marker, as what follows the end may hold any bytes.
absl::Status CheckJpegScans(std::span<const std::byte> file) {
  constexpr auto kMarker = std::byte{0xFF};
  constexpr auto kEnd = std::byte{0xD9};
  constexpr auto kScan = std::byte{0xDA};
  const auto is_frame = [](std::byte code) {
    return code >= std::byte{0xC0} && code <= std::byte{0xC2};
  };
  // Markers without a length: those inside of a scan, and of the start.
  const auto stands_alone = [](std::byte code) {
    return code == std::byte{0x00} || code == std::byte{0x01} ||
           (code >= std::byte{0xD0} && code <= std::byte{0xD8});
  };
  std::bitset<256> unscanned;  // components, by their names
  // Those that a segment names: `step` bytes apart, behind their count.
  const auto mark = [&](std::span<const std::byte> segment, size_t count_at,
                        size_t step, bool scanned) {
    if (segment.size() <= count_at) return;
    const size_t end =
        count_at + 1 + std::to_integer<size_t>(segment[count_at]) * step;
    for (size_t at = count_at + 1; at < std::min(end, segment.size());
         at += step) {
      unscanned.set(std::to_integer<size_t>(segment[at]), !scanned);
    }
  };
  int scans = 0;
  size_t i = 0;
  while (i + 1 < file.size()) {
    if (file[i] != kMarker || file[i + 1] == kMarker) {
      ++i;  // coded data of a scan, or filling
    } else if (file[i + 1] == kEnd) {
      return unscanned.any() ? NoScanOfComponent() : absl::OkStatus();
    } else if (stands_alone(file[i + 1])) {
      i += 2;
    } else {
      const std::byte code = file[i + 1];
      if (code == kScan && ++scans > kMaxScans) return TooManyScans();
      if (i + 3 >= file.size()) break;
      i += 2;
      const size_t length = std::to_integer<size_t>(file[i]) << 8 |
                            std::to_integer<size_t>(file[i + 1]);
      const auto segment = file.subspan(i, std::min(length, file.size() - i));
      if (is_frame(code)) mark(segment, 7, 3, false);
      if (code == kScan) mark(segment, 2, 2, true);
      i += length;
    }
  }
  return absl::InvalidArgumentError("the JPEG data ends early");
}

absl::Status DecodeJpeg(std::span<const std::byte> file,
                        ImageView<uint8_t> pixels,
                        absl::FunctionRef<bool()> given_up) {
  Decoder decoder(given_up);
  decoder.cmyk_row.resize(static_cast<size_t>(pixels.width) * 4);
  switch (Run(decoder, file, pixels)) {
    case Outcome::kOk:
      return absl::OkStatus();
    case Outcome::kWrongSize:
      return absl::InvalidArgumentError(
          "JPEG has two headers that disagree about its size");
    case Outcome::kLacksComponent:
      return NoScanOfComponent();
    case Outcome::kFailed:
      break;
  }
  if (decoder.too_many_scans) return TooManyScans();
  if (decoder.ended) return absl::CancelledError("nobody waits for the JPEG");
  if (decoder.errors.msg_code == JERR_OUT_OF_MEMORY ||
      decoder.errors.msg_code == JERR_NO_BACKING_STORE) {
    return ShortOfHostMemory(absl::ResourceExhaustedError(
        absl::StrCat("no memory to decode JPEG: ", decoder.message)));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot decode JPEG: ", decoder.message));
}

}  // namespace weir::image
