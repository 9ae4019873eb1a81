#include "kernels/ops/image/png_decoder.h"

#include <spng.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace weir::image {
namespace {

// Text and color profiles are of no use to us but are still parsed.
constexpr size_t kMaxChunkBytes = size_t{16} << 20;

struct FreeContext {
  void operator()(spng_ctx* context) const { spng_ctx_free(context); }
};

absl::Status ToStatus(int error) {
  if (error == SPNG_OK) return absl::OkStatus();
  if (error == SPNG_EMEM) {
    return absl::ResourceExhaustedError("no memory to decode PNG");
  }
  if (error == SPNG_EOF || error == SPNG_IO_EOF) {
    return absl::InvalidArgumentError("cannot decode PNG: data ends early");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("cannot decode PNG: ", spng_strerror(error)));
}

}  // namespace

int64_t PngDecoderBytes(const ImageInfo& info) {
  // Two rows of 16 bits for each of 4 samples, and as much for inflate.
  return int64_t{kMaxChunkBytes} + 4 * info.width * 8;
}

absl::Status DecodePng(std::span<const std::byte> file,
                       ImageView<uint8_t> pixels) {
  const std::unique_ptr<spng_ctx, FreeContext> context(spng_ctx_new(0));
  if (context == nullptr) return ToStatus(SPNG_EMEM);
  const auto width = static_cast<uint32_t>(pixels.width);
  const auto height = static_cast<uint32_t>(pixels.height);
  int error = spng_set_image_limits(context.get(), width, height);
  if (error == SPNG_OK) {
    error =
        spng_set_chunk_limits(context.get(), kMaxChunkBytes, kMaxChunkBytes);
  }
  if (error == SPNG_OK) {
    error = spng_set_png_buffer(context.get(), file.data(), file.size());
  }
  if (error == SPNG_OK) {
    const auto bytes = static_cast<size_t>(pixels.height * pixels.width * 3);
    error =
        spng_decode_image(context.get(), pixels.data, bytes, SPNG_FMT_RGB8, 0);
  }
  // Reads on to the end chunk, so that a missing tail is noticed.
  if (error == SPNG_OK) error = spng_decode_chunks(context.get());
  return ToStatus(error);
}

}  // namespace weir::image
