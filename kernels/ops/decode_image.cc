#include "kernels/ops/decode_image.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cpu/host_limits.h"
#include "kernels/ops/image/decode.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

constexpr int64_t kChannels = 3;

// The files of a value: the bytes of one, or a string for each.
class Files {
 public:
  Files(DType dtype, int64_t elements, const void* data)
      : dtype_(dtype), elements_(elements), data_(data) {}

  int64_t count() const { return dtype_ == DType::kString ? elements_ : 1; }
  std::span<const std::byte> operator[](int64_t i) const {
    if (dtype_ == DType::kString) {
      const StringRef& file = static_cast<const StringRef*>(data_)[i];
      return {reinterpret_cast<const std::byte*>(file.data), file.size};
    }
    return {static_cast<const std::byte*>(data_),
            static_cast<size_t>(elements_)};
  }

 private:
  const DType dtype_;
  const int64_t elements_;
  const void* const data_;
};

// What is wrong with the headers has the reason that the decoder's finds have.
absl::Status AsCorrupt(const absl::Status& status) {
  return Reason(status).empty() ? WithReason(status, "CORRUPT_DATA") : status;
}

absl::Status NameFile(const absl::Status& status, int64_t i, int64_t count) {
  if (status.ok() || count == 1) return status;
  return Annotate(status, absl::StrCat("picture ", i, " of ", count, ": "));
}

// To look at a picture's header costs as much, beside its parts.
constexpr int64_t kPartsOfPicture = 8;

absl::Status TooManyParts(int64_t count) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          count,
          " pictures: an evaluation reads the headers of pictures as "
          "far as ",
          kMaxDigestParts,
          " segments, bytes of filling and EXIF "
          "entries, of which each picture counts for ",
          kPartsOfPicture, " more; send fewer in one request")),
      "EVALUATION_TOO_LARGE", {{"limit", absl::StrCat(kMaxDigestParts)}});
}

// What files hold beyond what their pictures explain, in operations: few bytes
// may unpack to a picture, and many beside it are read, too, and so are headers
// of many parts. Several scans go over all of a picture. None, as a rule, and
// else a power of two, so that sizes of files make few plans. The bytes of
// files that are tensors count as elements.
class Surplus {
 public:
  void Add(int64_t bytes, int64_t parts, bool several_scans) {
    constexpr int64_t kBytesOfPart = 1024;
    bytes_ += bytes;
    in_scans_ += several_scans ? 1 : 0;
    largest_ = std::max(largest_, bytes);
    parts_ += parts;
    many_parts_ |= parts > kPartsBesideAPicture + bytes / kBytesOfPart;
  }

  int64_t Operations(bool text, int64_t picture) const {
    constexpr int64_t kBesideAPicture = int64_t{64} << 10;
    int64_t operations = many_parts_ ? parts_ * kOperationsOfPart : 0;
    if (text && largest_ > picture + kBesideAPicture) operations += bytes_;
    operations = SaturatingAdd(
        operations, SaturatingMul(in_scans_ * kOperationsOfScans, picture));
    operations = std::min(operations, int64_t{1} << 62);
    return operations == 0 ? 0
                           : static_cast<int64_t>(std::bit_ceil(
                                 static_cast<uint64_t>(operations)));
  }

 private:
  // About what a camera writes.
  static constexpr int64_t kPartsBesideAPicture = 64;
  // To look at one, and to decode past it.
  static constexpr int64_t kOperationsOfPart = 10;
  // Of an element, in up to a hundred scans of little each.
  static constexpr int64_t kOperationsOfScans = 20;

  int64_t bytes_ = 0;
  int64_t largest_ = 0;
  int64_t parts_ = 0;
  int64_t in_scans_ = 0;  // files
  bool many_parts_ = false;
};

// The digest: height and width, which all files must share, the memory that
// decoding one of them takes at most, and their surplus of operations.
constexpr size_t kDigestInts = 4;

// None where the files are not known.
const std::vector<int64_t>* DigestOf(const PlanArgs& args) {
  return !args.host_ints.empty() && args.host_ints[0].size() == kDigestInts
             ? &args.host_ints[0]
             : nullptr;
}

absl::StatusOr<std::vector<int64_t>> Digest(const HostTensor& value,
                                            DigestBudget& budget) {
  WEIR_ASSIGN_OR_RETURN(const int64_t elements, NumElements(value.dims));
  const Files files(value.dtype, elements, value.data);
  if (files.count() == 0) {
    return absl::InvalidArgumentError("there is no picture to decode");
  }
  if (!budget.Take(SaturatingMul(files.count(), kPartsOfPicture))) {
    return TooManyParts(files.count());
  }
  int64_t height = 0, width = 0, bytes = 0;
  Surplus surplus;
  for (int64_t i = 0; i < files.count(); ++i) {
    const absl::StatusOr<image::ImageInfo> info = image::PeekImage(files[i]);
    if (!info.ok()) {
      return NameFile(AsCorrupt(info.status()), i, files.count());
    }
    if (!budget.Take(info->header_parts)) return TooManyParts(files.count());
    bytes = std::max(bytes, image::DecoderBytes(*info));
    surplus.Add(static_cast<int64_t>(files[i].size()), info->header_parts,
                info->several_scans);
    if (i == 0) {
      height = info->UprightHeight();
      width = info->UprightWidth();
    } else if (height != info->UprightHeight() ||
               width != info->UprightWidth()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "picture ", i, " is ", info->UprightWidth(), " x ",
          info->UprightHeight(), ", picture 0 is ", width, " x ", height,
          "; pictures of one tensor must have the same size"));
    }
  }
  return std::vector<int64_t>{height, width, bytes,
                              surplus.Operations(value.dtype == DType::kString,
                                                 height * width * kChannels)};
}

absl::Status InferDecodeImage(InferContext& context) {
  const bool strings = context.node().input_types[0] == DType::kString;
  const SymbolicShape& input = context.input_shape(0);
  if (!input.has_value() && strings) {
    context.SetOutput(0, DType::kUint8, std::nullopt);
    return absl::OkStatus();
  }
  if (input.has_value() && (strings ? input->size() > 1 : input->size() != 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("encoded pictures of shape ", ShapeString(input), "; ",
                     strings ? "give one string, or a list of them"
                             : "give the bytes of one file, a list"));
  }
  SymbolicDims dims;
  if (strings && !input->empty()) dims.push_back((*input)[0]);
  const auto size = context.HostInts(0);
  if (size.has_value() && size->size() == kDigestInts) {
    dims.push_back((*size)[0]);
    dims.push_back((*size)[1]);
  } else {
    dims.resize(dims.size() + 2);
  }
  dims.push_back(kChannels);
  context.SetOutput(0, DType::kUint8, std::move(dims));
  return absl::OkStatus();
}

// How many of `files` the CPU decodes at a time, each in a thread of its own.
int64_t DecodedAtOnce(int64_t files) {
  static const int64_t threads = CpuQuota();
  return std::clamp<int64_t>(files, 1, threads);
}

// What the CPU's decoders take while they run.
int64_t CpuDecoderBytes(const PlanArgs& args) {
  return SaturatingMul(DecoderBytesOf(args), DecodedAtOnce(FilesOf(args)));
}

// In turn: what a picture takes however small it is.
constexpr int64_t kOperationsOfPicture = 5000;

NodeCost DecodeImageCost(const NodeInfo& node, Pace pace,
                         const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  const std::vector<int64_t>* const digest = DigestOf(args);
  if (digest != nullptr) {
    cost.operations = SaturatingAdd(cost.operations, (*digest)[3]);
  }
  if (pace == Pace::kInTurn) {
    cost.operations = SaturatingAdd(
        cost.operations, SaturatingMul(FilesOf(args), kOperationsOfPicture));
  }
  cost.scratch_bytes = CpuDecoderBytes(args);
  return cost;
}

absl::Status DecodeOne(CpuTeam* team, std::span<const std::byte> file,
                       int64_t height, int64_t width, uint8_t* pixels) {
  WEIR_ASSIGN_OR_RETURN(const image::ImageInfo info, image::PeekImage(file));
  if (info.UprightHeight() != height || info.UprightWidth() != width) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the picture is ", info.UprightWidth(), " x ", info.UprightHeight(),
        ", planned were ", width, " x ", height));
  }
  return image::DecodeImageInto(
      file, info, {pixels, static_cast<size_t>(height * width * kChannels)},
      [team] { return team != nullptr && team->GivenUp(); });
}

// The status that the fault has on every device, with what the decoder said.
absl::Status AsFault(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return Annotate(FaultStatus(FaultCode::kCorruptData),
                  absl::StrCat(status.message(), ": "));
}

class DecodePlan final : public KernelPlan {
 public:
  explicit DecodePlan(const PlanArgs& args)
      : dtype_(args.inputs[0].dtype),
        elements_(args.inputs[0].elements),
        decoder_bytes_(static_cast<size_t>(CpuDecoderBytes(args))) {
    const Dims& out = args.outputs[0].dims;
    height_ = out[out.size() - 3];
    width_ = out[out.size() - 2];
  }

  // The decoders take their memory themselves. That the run has as much of its
  // arena, and leaves it alone, counts it with all that works compute on.
  size_t scratch_bytes() const override { return decoder_bytes_; }

  // A file may unpack to far more than its picture.
  bool time_varies() const override { return true; }

  absl::Status Run(const RunArgs& run) const override {
    const Files files(dtype_, elements_, run.inputs[0]);
    auto* pixels = static_cast<uint8_t*>(run.outputs[0]);
    const int64_t count = files.count();
    const int64_t parts = DecodedAtOnce(count);
    return ParallelForStatus(run.team, parts, [&](int64_t part) {
      const int64_t end = (part + 1) * count / parts;
      for (int64_t i = part * count / parts; i < end; ++i) {
        if (run.team != nullptr && run.team->GivenUp()) break;
        const absl::Status status =
            AsFault(DecodeOne(run.team, files[i], height_, width_,
                              pixels + i * height_ * width_ * kChannels));
        if (absl::IsCancelled(status)) break;
        if (!status.ok()) return NameFile(status, i, count);
      }
      return absl::OkStatus();
    });
  }

 private:
  const DType dtype_;
  const int64_t elements_;
  const size_t decoder_bytes_;
  int64_t height_ = 0;
  int64_t width_ = 0;
};

class DecodeKernel final : public Kernel {
 public:
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return std::make_unique<const DecodePlan>(args);
  }
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeDecodeImageKernel(
    const NodeInfo&, Device&) {
  return std::make_unique<const DecodeKernel>();
}

}  // namespace

int64_t FilesOf(const PlanArgs& args) {
  const Dims& out = args.outputs[0].dims;
  return out.size() == 4 ? out[0] : 1;
}

int64_t DecoderBytesOf(const PlanArgs& args) {
  const std::vector<int64_t>* const digest = DigestOf(args);
  return digest == nullptr ? 0 : (*digest)[2];
}

absl::Status Register_weir_DecodeImage(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "DecodeImage";
  def.doc =
      "Decodes JPEG or PNG to RGB with the EXIF orientation applied. The bytes "
      "of one file, or one string, give HWC; a list of strings whose pictures "
      "have the same size gives NHWC.";
  def.inputs = {{.name = "file", .types = {DType::kUint8, DType::kString}}};
  def.outputs = {{.name = "picture"}};
  def.host_inputs = 1;
  def.digest = Digest;
  def.infer = InferDecodeImage;
  def.cost = DecodeImageCost;
  return registry.Register(std::move(def), MakeDecodeImageKernel);
}

}  // namespace weir
