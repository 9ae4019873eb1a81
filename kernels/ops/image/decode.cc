#include "kernels/ops/image/decode.h"

#include <memory>
#include <new>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/ops/image/jpeg_decoder.h"
#include "kernels/ops/image/orientation.h"
#include "kernels/ops/image/png_decoder.h"

namespace weir::image {
namespace {

absl::Status DecodeStored(std::span<const std::byte> file,
                          const ImageInfo& info, uint8_t* pixels,
                          absl::FunctionRef<bool()> given_up) {
  const ImageView<uint8_t> stored =
      DenseView(pixels, info.height, info.width, 3);
  return info.format == ImageFormat::kJpeg ? DecodeJpeg(file, stored, given_up)
                                           : DecodePng(file, stored, given_up);
}

}  // namespace

int64_t DecoderBytes(const ImageInfo& info) {
  const int64_t turned = info.orientation == Orientation::kUpright
                             ? 0
                             : info.width * info.height * 3;
  return turned + (info.format == ImageFormat::kJpeg ? JpegDecoderBytes(info)
                                                     : PngDecoderBytes(info));
}

absl::Status DecodeImageInto(std::span<const std::byte> file,
                             const ImageInfo& info, std::span<uint8_t> pixels,
                             absl::FunctionRef<bool()> given_up) {
  const int64_t bytes = info.height * info.width * 3;
  if (static_cast<int64_t>(pixels.size()) != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("picture of ", info.width, " x ", info.height, " needs ",
                     bytes, " bytes, not ", pixels.size()));
  }
  if (info.orientation == Orientation::kUpright) {
    return DecodeStored(file, info, pixels.data(), given_up);
  }
  // Bounded by ImageLimits, yet the largest block that we ever ask for.
  const std::unique_ptr<uint8_t[]> stored(new (std::nothrow)
                                              uint8_t[pixels.size()]);
  if (stored == nullptr) {
    return ShortOfHostMemory(absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", bytes, " bytes of pixels")));
  }
  WEIR_RETURN_IF_ERROR(DecodeStored(file, info, stored.get(), given_up));
  ApplyOrientation(
      DenseView<const uint8_t>(stored.get(), info.height, info.width, 3),
      info.orientation,
      DenseView(pixels.data(), info.UprightHeight(), info.UprightWidth(), 3));
  return absl::OkStatus();
}

}  // namespace weir::image
