#include "kernels/device/cuda/nvjpeg.h"

#include <cuda_runtime_api.h>

#if WEIR_HAVE_NVJPEG
#include <nvjpeg.h>
#endif

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/dynamic_library.h"
#include "kernels/device/cuda/in_flight_pool.h"
#include "kernels/device/device.h"

namespace weir::cuda {

size_t NvJpegBytes(int64_t width, int64_t height) {
  constexpr size_t kLeast = size_t{1} << 20;
  constexpr size_t kBlock = 32;  // the largest that components are padded to
  constexpr size_t kBytesOfAPixel = 3 * 2;
  const auto padded = [](int64_t side) {
    return (static_cast<size_t>(side) + kBlock - 1) / kBlock * kBlock;
  };
  return std::bit_ceil(
      std::max(kLeast, padded(width) * padded(height) * kBytesOfAPixel));
}

#if WEIR_HAVE_NVJPEG

namespace {

constexpr char kSoname[] = "libnvjpeg.so.13";
constexpr size_t kMaxInFlight = 256;
constexpr size_t kMaxBytes = size_t{1} << 30;  // NvJpegBytes of all decoders
// Chroma is interpolated, as libjpeg does; damaged data is an error.
constexpr unsigned kFlags = (NVJPEG_FLAGS_BITSTREAM_STRICT) |
                            (NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION);

struct Api {
  decltype(&nvjpegCreateEx) create = nullptr;
  decltype(&nvjpegDestroy) destroy = nullptr;
  decltype(&nvjpegJpegStateCreate) state_create = nullptr;
  decltype(&nvjpegJpegStateDestroy) state_destroy = nullptr;
  decltype(&nvjpegGetImageInfo) image_info = nullptr;
  decltype(&nvjpegDecode) decode = nullptr;
};

absl::Status NvJpegStatus(nvjpegStatus_t status, const char* what) {
  switch (status) {
    case NVJPEG_STATUS_SUCCESS:
      return absl::OkStatus();
    case NVJPEG_STATUS_BAD_JPEG:
    case NVJPEG_STATUS_INCOMPLETE_BITSTREAM:
      return absl::InvalidArgumentError("damaged JPEG data");
    case NVJPEG_STATUS_JPEG_NOT_SUPPORTED:
    case NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED:
      return absl::UnimplementedError("a kind of JPEG that nvJPEG lacks");
    case NVJPEG_STATUS_ALLOCATOR_FAILURE:
      return ShortOfDeviceMemory(absl::ResourceExhaustedError(
          absl::StrCat(what, ": no memory for the decoder")));
    default: {
      const cudaError_t error = cudaPeekAtLastError();
      if (IsSticky(error)) return CudaStatus(error, what);
      return absl::InternalError(
          absl::StrCat(what, ": error ", static_cast<int>(status)));
    }
  }
}

struct DecoderState {
  nvjpegJpegState_t state = nullptr;
  const Api* api = nullptr;
  size_t bytes = 0;  // it grows to this
  DecoderState() = default;
  DecoderState(const DecoderState&) = delete;
  DecoderState& operator=(const DecoderState&) = delete;
  ~DecoderState() {
    if (state != nullptr) (void)api->state_destroy(state);
  }
};

}  // namespace

struct NvJpeg::State {
  Api api;
  nvjpegHandle_t handle = nullptr;
  InFlightPool<DecoderState> decoders{kMaxInFlight, kMaxBytes};
};

absl::StatusOr<std::unique_ptr<NvJpeg>> NvJpeg::Open() {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(kSoname);
  if (!library.ok()) {
    return absl::UnimplementedError(absl::StrCat(
        "needs nvJPEG 13: ", absl::string_view(library.status().message())));
  }
  auto state = std::make_unique<State>();
  Api& api = state->api;
  WEIR_RETURN_IF_ERROR(library->Load("nvjpegCreateEx", &api.create));
  WEIR_RETURN_IF_ERROR(library->Load("nvjpegDestroy", &api.destroy));
  WEIR_RETURN_IF_ERROR(
      library->Load("nvjpegJpegStateCreate", &api.state_create));
  WEIR_RETURN_IF_ERROR(
      library->Load("nvjpegJpegStateDestroy", &api.state_destroy));
  WEIR_RETURN_IF_ERROR(library->Load("nvjpegGetImageInfo", &api.image_info));
  WEIR_RETURN_IF_ERROR(library->Load("nvjpegDecode", &api.decode));
  WEIR_RETURN_IF_ERROR(NvJpegStatus(api.create(NVJPEG_BACKEND_DEFAULT, nullptr,
                                               nullptr, kFlags, &state->handle),
                                    "nvjpegCreateEx"));
  return std::unique_ptr<NvJpeg>(new NvJpeg(std::move(state)));
}

absl::Status NvJpeg::Decode(Stream& stream, std::span<const std::byte> file,
                            int64_t width, int64_t height, void* rgb,
                            Stream::GoOn go_on) {
  const Api& api = state_->api;
  // It writes as many pixels as it believes in, whatever has room.
  int channels = 0;
  nvjpegChromaSubsampling_t subsampling = NVJPEG_CSS_UNKNOWN;
  int widths[NVJPEG_MAX_COMPONENT] = {}, heights[NVJPEG_MAX_COMPONENT] = {};
  WEIR_RETURN_IF_ERROR(NvJpegStatus(
      api.image_info(state_->handle,
                     reinterpret_cast<const unsigned char*>(file.data()),
                     file.size(), &channels, &subsampling, widths, heights),
      "nvjpegGetImageInfo"));
  // It has no code for it, and says sizes of components.
  if (subsampling == NVJPEG_CSS_UNKNOWN) {
    return absl::UnimplementedError("a sampling of JPEG that nvJPEG lacks");
  }
  if (widths[0] != width || heights[0] != height) {
    return absl::InvalidArgumentError(
        "the JPEG data has two headers that disagree");
  }
  const size_t bytes = NvJpegBytes(width, height);
  auto item = state_->decoders.Take(
      [bytes](const DecoderState& decoder) { return decoder.bytes >= bytes; },
      [&](DecoderState* decoder) {
        decoder->api = &api;
        decoder->bytes = bytes;
        return NvJpegStatus(api.state_create(state_->handle, &decoder->state),
                            "nvjpegJpegStateCreate");
      },
      [&](Stream::Look look) { return stream.Await(look, go_on); }, bytes);
  WEIR_RETURN_IF_ERROR(item.status());
  nvjpegImage_t image = {};
  image.channel[0] = static_cast<unsigned char*>(rgb);
  image.pitch[0] = static_cast<size_t>(width) * 3;
  const cudaStream_t native = static_cast<cudaStream_t>(stream.native_handle());
  const absl::Status decoded = NvJpegStatus(
      api.decode(state_->handle, (*item)->value.state,
                 reinterpret_cast<const unsigned char*>(file.data()),
                 file.size(), NVJPEG_OUTPUT_RGBI, &image, native),
      "nvjpegDecode");
  const absl::Status returned =
      state_->decoders.Return(*std::move(item), native);
  return decoded.ok() ? returned : decoded;
}

bool NvJpeg::TrimOne(Nanos before) { return state_->decoders.TrimOne(before); }

#else  // WEIR_HAVE_NVJPEG

struct NvJpeg::State {};

absl::StatusOr<std::unique_ptr<NvJpeg>> NvJpeg::Open() {
  return absl::UnimplementedError("this build has no nvJPEG");
}

absl::Status NvJpeg::Decode(Stream&, std::span<const std::byte>, int64_t,
                            int64_t, void*, Stream::GoOn) {
  return absl::UnimplementedError("this build has no nvJPEG");
}

bool NvJpeg::TrimOne(Nanos) { return false; }

#endif  // WEIR_HAVE_NVJPEG

NvJpeg::NvJpeg(std::unique_ptr<State> state) : state_(std::move(state)) {}

NvJpeg::~NvJpeg() {
#if WEIR_HAVE_NVJPEG
  nvjpegHandle_t handle = state_->handle;
  auto* destroy = state_->api.destroy;
  // The decoders first: they belong to the handle.
  state_.reset();
  if (handle != nullptr) (void)destroy(handle);
#endif
}

}  // namespace weir::cuda
