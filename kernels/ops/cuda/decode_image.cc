// weir.DecodeImage: JPEG by nvJPEG, turned upright by a kernel; PNG (and kinds
// of JPEG that nvJPEG lacks: of four channels, of RGB that is stored as such)
// by the CPU's decoder into pinned memory. Without nvJPEG other JPEGs are
// UNIMPLEMENTED.
#include "kernels/ops/decode_image.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/nvjpeg.h"
#include "kernels/device/cuda/staged_copy.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/image/decode.h"
#include "kernels/ops/image/jpeg_decoder.h"

namespace weir::cuda {
namespace {

constexpr int64_t kChannels = 3;
constexpr size_t kLaunchesOfAPicture = 8;  // nvJPEG's, about
constexpr int64_t kPicturesAtOnce = 32;    // in flight: twice as many at most

struct Picture {
  int64_t height = 0;  // upright
  int64_t width = 0;
  size_t bytes() const {
    return static_cast<size_t>(height * width * kChannels);
  }
};

// The place of the stored pixel (0, 0) in the upright picture, and the steps
// there for one to the right and one down in the stored one, in bytes.
struct Turn {
  int64_t start, step_x, step_y;
};
Turn TurnOf(image::Orientation orientation, const Picture& upright) {
  const int64_t row = upright.width * kChannels;
  const int64_t right = row - kChannels;
  const int64_t bottom = (upright.height - 1) * row;
  switch (orientation) {
    case image::Orientation::kUpright:
      return {0, kChannels, row};
    case image::Orientation::kMirrored:
      return {right, -kChannels, row};
    case image::Orientation::kUpsideDown:
      return {right + bottom, -kChannels, -row};
    case image::Orientation::kUpsideDownMirrored:
      return {bottom, kChannels, -row};
    case image::Orientation::kTransposed:
      return {0, row, kChannels};
    case image::Orientation::kTurnRight:
      return {right, row, -kChannels};
    case image::Orientation::kTransverse:
      return {right + bottom, -row, -kChannels};
    case image::Orientation::kTurnLeft:
      return {bottom, -row, kChannels};
  }
  return {0, kChannels, row};
}

class Decoder {
 public:
  Decoder(absl::StatusOr<NvJpeg*> nvjpeg, CudaDevice* device,
          GeneratedKernel orient, Picture picture)
      : nvjpeg_(std::move(nvjpeg)),
        device_(device),
        orient_(std::move(orient)),
        picture_(picture) {}

  size_t picture_bytes() const { return picture_.bytes(); }

  // `scratch` holds one picture. Waits while `go_on` is OK.
  absl::Status Decode(Stream& stream, std::span<const std::byte> file,
                      void* pixels, void* scratch, Stream::GoOn go_on) const {
    WEIR_ASSIGN_OR_RETURN(const image::ImageInfo info, image::PeekImage(file));
    if (info.UprightHeight() != picture_.height ||
        info.UprightWidth() != picture_.width) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the picture is ", info.UprightWidth(), " x ", info.UprightHeight(),
          ", planned were ", picture_.width, " x ", picture_.height));
    }
    if (info.IsPlainJpeg()) {
      WEIR_RETURN_IF_ERROR(nvjpeg_.status());
      absl::Status status =
          DecodeJpeg(stream, file, info, pixels, scratch, go_on);
      if (!absl::IsUnimplemented(status)) return status;
    }
    WEIR_ASSIGN_OR_RETURN(
        const HostScratch::Lease scratch_lease,
        device_->host_scratch().Take(
            static_cast<size_t>(image::DecoderBytes(info)),
            [&](Stream::Look look) { return stream.Await(look, go_on); }));
    return device_->staged_copies().CopyFilled(
        stream, picture_.bytes(), pixels,
        [&](std::span<uint8_t> pinned) {
          absl::Status wanted;
          const absl::Status status =
              image::DecodeImageInto(file, info, pinned, [&] {
                wanted = go_on();
                return !wanted.ok();
              });
          return wanted.ok() ? status : wanted;
        },
        go_on);
  }

 private:
  absl::Status DecodeJpeg(Stream& stream, std::span<const std::byte> file,
                          const image::ImageInfo& info, void* pixels,
                          void* scratch, Stream::GoOn go_on) const {
    // nvJPEG fills what is missing at the end with gray, and takes any number
    // of scans, each of which costs time over the whole picture.
    WEIR_RETURN_IF_ERROR(image::CheckJpegScans(file));
    const bool upright = info.orientation == image::Orientation::kUpright;
    WEIR_RETURN_IF_ERROR((*nvjpeg_)->Decode(stream, file, info.width,
                                            info.height,
                                            upright ? pixels : scratch, go_on));
    if (upright) return absl::OkStatus();
    const Turn turn = TurnOf(info.orientation, picture_);
    const uint64_t count = static_cast<uint64_t>(info.width * info.height);
    Words words;
    words.Add(scratch).Add(pixels).Add(count).Add(info.width);
    words.Add(turn.start).Add(turn.step_x).Add(turn.step_y);
    return orient_.Launch(stream, GridFor(count), words);
  }

  const absl::StatusOr<NvJpeg*> nvjpeg_;
  CudaDevice* const device_;
  const GeneratedKernel orient_;
  const Picture picture_;
};

// The status that damaged data has on every device, with the decoder's words.
absl::Status NameFile(const absl::Status& status, int64_t i, int64_t count) {
  absl::Status named = status;
  if (absl::IsInvalidArgument(status)) {
    named = Annotate(FaultStatus(FaultCode::kCorruptData),
                     absl::StrCat(status.message(), ": "));
  }
  if (count == 1) return named;
  return Annotate(named, absl::StrCat("picture ", i, " of ", count, ": "));
}

// `elements` files, or one of as many bytes.
absl::Status DecodeFiles(const Decoder& decoder, const RunArgs& run,
                         bool strings, int64_t elements) {
  const auto go_on = [&run] {
    return run.go_on != nullptr ? (*run.go_on)() : absl::OkStatus();
  };
  const int64_t count = strings ? elements : 1;
  auto* pixels = static_cast<std::byte*>(run.outputs[0]);
  for (int64_t i = 0; i < count; ++i) {
    // Not on a thread that must not wait: it computes on the host.
    if (i > 0 && i % kPicturesAtOnce == 0) {
      WEIR_RETURN_IF_ERROR(run.pace != nullptr ? (*run.pace)()
                                               : run.stream.WaitForRoom(go_on));
    }
    std::span<const std::byte> file(
        static_cast<const std::byte*>(run.inputs[0]),
        static_cast<size_t>(elements));
    if (strings) {
      const StringRef& ref = static_cast<const StringRef*>(run.inputs[0])[i];
      file = {reinterpret_cast<const std::byte*>(ref.data), ref.size};
    }
    const absl::Status status =
        decoder.Decode(run.stream, file, pixels, run.scratch, go_on);
    if (!status.ok()) return NameFile(status, i, count);
    pixels += decoder.picture_bytes();
  }
  return absl::OkStatus();
}

absl::StatusOr<PlanFunction> CompileDecodeImage(const NodeInfo&,
                                                CudaDevice* device) {
  absl::StatusOr<NvJpeg*> nvjpeg = device->nvjpeg();
  if (!nvjpeg.ok() && !absl::IsUnimplemented(nvjpeg.status())) {
    return nvjpeg.status();
  }
  return PlanFunction(
      [device, nvjpeg](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const Dims& out = args.outputs[0].dims;
        const Picture picture = {out[out.size() - 3], out[out.size() - 2]};
        WEIR_ASSIGN_OR_RETURN(
            GeneratedKernel orient,
            GeneratedKernel::Make(device,
                                  absl::StrCat(std::string(PreludeSource()),
                                               Define("PICTURE_ORIENT", "1"),
                                               std::string(PictureSource()))));
        const SharedHold hold = orient.hold();
        auto decoder = std::make_shared<const Decoder>(
            nvjpeg, device, std::move(orient), picture);
        const bool strings = args.inputs[0].dtype == DType::kString;
        const int64_t elements = args.inputs[0].elements;
        PlannedRun planned;
        planned.scratch_bytes = picture.bytes();
        planned.shared_holds = {hold};
        // nvJPEG decodes the entropy code in the calling thread.
        planned.computes_on_host = true;
        planned.launches =
            kLaunchesOfAPicture *
            static_cast<size_t>(strings ? std::max<int64_t>(elements, 1) : 1);
        planned.run = [=](const RunArgs& run) {
          return DecodeFiles(*decoder, run, strings, elements);
        };
        return planned;
      });
}

// Pictures are turned upright one after the other; what nvJPEG does not know is
// decoded on the host.
int64_t DecodeScratch(const NodeInfo&, const PlanArgs& args) {
  const int64_t pictures = FilesOf(args);
  const int64_t one = pictures == 0 ? 0 : args.outputs[0].elements / pictures;
  return SaturatingAdd(one, DecoderBytesOf(args));
}

}  // namespace

absl::Status RegisterDecodeImage(OpRegistry& registry) {
  return RegisterNode(registry, "weir", "DecodeImage", CompileDecodeImage,
                      {.scratch_bytes = DecodeScratch});
}

}  // namespace weir::cuda
