#include "kernels/ops/image/png_decoder.h"

#include <spng.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/device/device.h"
#include "kernels/ops/image/png_chunk.h"

namespace weir::image {
namespace {

// Of libspng's and zlib's state and their buffers, whatever the picture.
constexpr int64_t kTables = int64_t{256} << 10;

// Hands libspng a file without its ancillary chunks (text, color profiles,
// transparency), of which RGB takes nothing, and which may unpack to thousands
// of times their bytes. Ends the file early where its chunks are malformed, and
// once it is given up.
class CriticalChunks {
 public:
  CriticalChunks(std::span<const std::byte> file,
                 absl::FunctionRef<bool()> given_up)
      : rest_(file), given_up_(given_up) {}

  // Why the file was ended early; OK if it was not.
  const absl::Status& status() const { return status_; }

  // Asks; once it is given up, its status says so.
  bool GivenUp() {
    if (status_.ok() && given_up_()) {
      status_ = absl::CancelledError("given up");
    }
    return !status_.ok();
  }

  // libspng's spng_rw_fn; it reads some kilobytes at a time.
  static int Read(spng_ctx*, void* self, void* to, size_t length) {
    return static_cast<CriticalChunks*>(self)->Read(static_cast<std::byte*>(to),
                                                    length);
  }

 private:
  static constexpr size_t kSignature = 8;
  static constexpr size_t kLength = 4;
  static constexpr size_t kHeader = kLength + 4;  // and a type
  static constexpr size_t kFrame = kHeader + 4;   // and a checksum
  static constexpr uint32_t kAncillary = uint32_t{0x20} << 24;  // of a type
  static constexpr uint32_t kPixels = 0x49444154;               // IDAT

  int Read(std::byte* to, size_t length) {
    if (GivenUp()) return SPNG_IO_EOF;
    while (length > 0) {
      if (left_ == 0 && !NextChunk()) return SPNG_IO_EOF;
      const size_t part = std::min({length, left_, rest_.size()});
      if (part == 0) return SPNG_IO_EOF;
      std::memcpy(to, rest_.data(), part);
      rest_ = rest_.subspan(part);
      left_ -= part;
      to += part;
      length -= part;
    }
    return SPNG_OK;
  }

  // Goes to the next chunk that is to be read. False where the file ends, or is
  // malformed. Asks nobody: it takes some nanoseconds for each chunk, and
  // PeekImage has refused what has too many.
  bool NextChunk() {
    while (rest_.size() >= kHeader) {
      const uint32_t length = BigEndian(rest_.first(kLength));
      const uint32_t type =
          BigEndian(rest_.subspan(kLength, kHeader - kLength));
      status_ = CheckPngChunk(length, type);
      if (status_.ok()) status_ = CheckOrder(type == kPixels);
      if (!status_.ok()) return false;
      left_ = size_t{length} + kFrame;
      if ((type & kAncillary) == 0) return true;
      if (rest_.size() < left_) return false;
      rest_ = rest_.subspan(left_);
    }
    return false;
  }

  absl::Status CheckOrder(bool pixels) {
    if (pixels && past_pixels_) {
      return absl::InvalidArgumentError(
          "PNG has chunks of pixels that stand apart");
    }
    past_pixels_ = in_pixels_ && !pixels;
    in_pixels_ = in_pixels_ || pixels;
    return absl::OkStatus();
  }

  static uint32_t BigEndian(std::span<const std::byte> bytes) {
    uint32_t value = 0;
    for (const std::byte byte : bytes) {
      value = value << 8 | std::to_integer<uint32_t>(byte);
    }
    return value;
  }

  std::span<const std::byte> rest_;
  const absl::FunctionRef<bool()> given_up_;
  size_t left_ = kSignature;  // of the chunk that is being read
  bool in_pixels_ = false, past_pixels_ = false;
  absl::Status status_;
};

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

absl::Status ToStatus(int error) {
  if (error == SPNG_OK) return absl::OkStatus();
  if (error == SPNG_EMEM) {
    return ShortOfHostMemory(
        absl::ResourceExhaustedError("no memory to decode PNG"));
  }
  if (error == SPNG_EOF || error == SPNG_IO_EOF) {
    return absl::InvalidArgumentError("cannot decode PNG: data ends early");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot decode PNG: ", spng_strerror(error)));
}

// libspng takes an index beyond the palette for black. Indices are read into
// the end of `pixels`, where colors are written behind the reading.
int DecodeIndices(spng_ctx* context, CriticalChunks& chunks,
                  const spng_ihdr& header, ImageView<uint8_t> pixels) {
  constexpr size_t kPixelsPerQuestion = size_t{1} << 16;
  const auto bits = static_cast<size_t>(header.bit_depth);
  const auto width = static_cast<size_t>(pixels.width);
  const auto height = static_cast<size_t>(pixels.height);
  const size_t row_bytes = (width * bits + 7) / 8;
  const size_t bytes = row_bytes * height;
  uint8_t* const indices = pixels.data + 3 * width * height - bytes;
  // libspng adds the bits of interlaced pixels to what is there.
  if (header.interlace_method != 0) std::memset(indices, 0, bytes);
  int error = spng_decode_image(context, indices, bytes, SPNG_FMT_RAW, 0);
  spng_plte palette;
  if (error == SPNG_OK) error = spng_get_plte(context, &palette);
  if (error != SPNG_OK) return error;
  const uint8_t* row = indices;
  uint8_t* to = pixels.data;
  size_t unasked = 0;
  for (size_t y = 0; y < height; ++y, row += row_bytes) {
    if (unasked += width; unasked > kPixelsPerQuestion) {
      if (chunks.GivenUp()) return SPNG_OK;
      unasked = 0;
    }
    for (size_t x = 0; x < width; ++x, to += 3) {
      const size_t bit = x * bits;
      const unsigned shifted = row[bit / 8] >> (8 - bits - bit % 8);
      const unsigned index = shifted & ((1U << bits) - 1);
      if (index >= palette.n_entries) return SPNG_EPLTE_IDX;
      const spng_plte_entry& color = palette.entries[index];
      to[0] = color.red;
      to[1] = color.green;
      to[2] = color.blue;
    }
  }
  return SPNG_OK;
}

int DecodePixels(spng_ctx* context, CriticalChunks& chunks,
                 ImageView<uint8_t> pixels) {
  spng_ihdr header;
  const int error = spng_get_ihdr(context, &header);
  if (error != SPNG_OK) return error;
  if (header.color_type == SPNG_COLOR_TYPE_INDEXED) {
    return DecodeIndices(context, chunks, header, pixels);
  }
  const auto bytes = static_cast<size_t>(pixels.height * pixels.width * 3);
  return spng_decode_image(context, pixels.data, bytes, SPNG_FMT_RGB8, 0);
}

}  // namespace

int64_t PngDecoderBytes(const ImageInfo& info) {
  // Two rows of 16 bits for each of 4 samples, and as much for inflate.
  return kTables + 4 * info.width * 8;
}

absl::Status DecodePng(std::span<const std::byte> file,
                       ImageView<uint8_t> pixels,
                       absl::FunctionRef<bool()> given_up) {
  const std::unique_ptr<spng_ctx, FreeContext> context(spng_ctx_new(0));
  if (context == nullptr) return ToStatus(SPNG_EMEM);
  const auto width = static_cast<uint32_t>(pixels.width);
  const auto height = static_cast<uint32_t>(pixels.height);
  int error = spng_set_image_limits(context.get(), width, height);
  CriticalChunks chunks(file, given_up);
  if (error == SPNG_OK) {
    error = spng_set_png_stream(context.get(), CriticalChunks::Read, &chunks);
  }
  if (error == SPNG_OK) error = DecodePixels(context.get(), chunks, pixels);
  // Reads on to the end chunk, so that a missing tail is noticed.
  if (error == SPNG_OK) error = spng_decode_chunks(context.get());
  if (!chunks.status().ok()) return chunks.status();
  return ToStatus(error);
}

}  // namespace weir::image
