#include "kernels/ops/picture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/alignment.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "kernels/ops/convert.h"
#include "kernels/ops/image/crop_flip_normalize.h"
#include "kernels/ops/image/resize.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/scalar_functions.h"

namespace weir {
namespace {

constexpr TypeSet kPixelTypes = {DType::kUint8, DType::kFloat};
constexpr TypeSet kFlagTypes = {DType::kBool, DType::kInt32};

constexpr int64_t kMaxChannels = 65536;

// -- Inference ----------------------------------------------------------------

absl::Status CheckPicture(const SymbolicShape& shape) {
  if (shape.has_value() && shape->size() != 3 && shape->size() != 4) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a picture of shape ", ShapeString(shape), " is not HWC or NHWC"));
  }
  return absl::OkStatus();
}

// What has a table with an entry per channel.
absl::Status CheckChannels(const SymbolicShape& shape) {
  if (shape.has_value() && shape->back().known() &&
      shape->back().value() > kMaxChannels) {
    return absl::InvalidArgumentError(
        absl::StrCat("a picture of shape ", ShapeString(shape),
                     " has more than ", kMaxChannels, " channels"));
  }
  return absl::OkStatus();
}

Dim Height(const SymbolicDims& dims) { return dims[dims.size() - 3]; }
Dim Width(const SymbolicDims& dims) { return dims[dims.size() - 2]; }

absl::Status InferResize(InferContext& context) {
  const NodeInfo& node = context.node();
  SymbolicShape shape = context.input_shape(0);
  WEIR_RETURN_IF_ERROR(CheckPicture(shape));
  WEIR_RETURN_IF_ERROR(ResizeFilterOf(node).status());
  if (shape.has_value()) {
    SymbolicDims& dims = *shape;
    Dim height, width;
    const float x = node.attributes.Float("resize_x", 0);
    const float y = node.attributes.Float("resize_y", 0);
    const bool fixed = x != 0 && y != 0;
    if ((Height(dims).known() && Width(dims).known()) || fixed) {
      // The size of a picture with both sides given does not depend on it.
      const int64_t from_height =
          Height(dims).known() ? Height(dims).value() : 1;
      const int64_t from_width = Width(dims).known() ? Width(dims).value() : 1;
      WEIR_ASSIGN_OR_RETURN(const image::ResizeGeometry geometry,
                            ResizeGeometryOf(node, from_height, from_width));
      height = geometry.y.out_size;
      width = geometry.x.out_size;
    }
    dims[dims.size() - 3] = height;
    dims[dims.size() - 2] = width;
  }
  context.SetOutput(0, node.input_types[0], std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> CropSize(const NodeInfo& node, std::string_view name) {
  const double size =
      std::round(static_cast<double>(node.attributes.Float(name, 0)));
  if (!(size >= 0 && size <= 1e9)) {
    return absl::InvalidArgumentError(absl::StrCat(
        AbslView(name), " of ", size, " is not a number of pixels"));
  }
  return static_cast<int64_t>(size);
}

absl::Status InferCrop(InferContext& context) {
  const NodeInfo& node = context.node();
  SymbolicShape shape = context.input_shape(0);
  WEIR_RETURN_IF_ERROR(CheckPicture(shape));
  WEIR_ASSIGN_OR_RETURN(const int64_t crop_h, CropSize(node, "crop_h"));
  WEIR_ASSIGN_OR_RETURN(const int64_t crop_w, CropSize(node, "crop_w"));
  if (shape.has_value()) {
    SymbolicDims& dims = *shape;
    // Each side is checked as soon as it is known.
    WEIR_RETURN_IF_ERROR(
        CropWindowOf(node,
                     Height(dims).known() ? Height(dims).value()
                                          : std::max<int64_t>(crop_h, 1),
                     Width(dims).known() ? Width(dims).value()
                                         : std::max<int64_t>(crop_w, 1))
            .status());
    if (crop_h != 0) dims[dims.size() - 3] = crop_h;
    if (crop_w != 0) dims[dims.size() - 2] = crop_w;
  }
  context.SetOutput(0, node.input_types[0], std::move(shape));
  return absl::OkStatus();
}

absl::Status InferFlip(InferContext& context) {
  const NodeInfo& node = context.node();
  const SymbolicShape& shape = context.input_shape(0);
  WEIR_RETURN_IF_ERROR(CheckPicture(shape));
  const Dim count =
      shape.has_value() && shape->size() == 4 ? (*shape)[0] : Dim(1);
  for (size_t i = 1; i <= 2; ++i) {
    if (!node.HasInput(i) || !context.input_shape(i).has_value()) continue;
    const SymbolicDims& flags = *context.input_shape(i);
    const bool scalar =
        flags.empty() || (flags.size() == 1 && flags[0] == Dim(1));
    if (flags.size() > 1 ||
        (shape.has_value() && !scalar && flags[0].SurelyDiffers(count))) {
      return absl::InvalidArgumentError(
          absl::StrCat(i == 1 ? "horizontal " : "vertical ", ShapeString(flags),
                       " holds neither one value nor one "
                       "per picture of ",
                       ShapeString(shape)));
    }
  }
  return InferSameAsInput(context);
}

absl::Status InferNormalize(InferContext& context) {
  const NodeInfo& node = context.node();
  SymbolicShape shape = context.input_shape(0);
  WEIR_RETURN_IF_ERROR(CheckPicture(shape));
  WEIR_RETURN_IF_ERROR(CheckChannels(shape));
  WEIR_ASSIGN_OR_RETURN(
      const NormalizeSettings settings,
      NormalizeSettingsOf(node, shape.has_value() ? shape->back() : Dim()));
  if (shape.has_value() && settings.planes) {
    std::rotate(shape->end() - 3, shape->end() - 1, shape->end());
  }
  context.SetOutput(0, settings.dtype, std::move(shape));
  return absl::OkStatus();
}

// -- Resize -------------------------------------------------------------------

// Rows of the output that are made as one piece: about 2 M elements of input.
constexpr int64_t kElementsPerBand = 2 << 20;
constexpr int64_t kMaxBands = 16;
// Between two questions whether a band is given up, if a row takes no more.
constexpr int64_t kMostOperations = 1 << 20;

class ResizeKernelPlan : public KernelPlan {
 public:
  static absl::StatusOr<std::unique_ptr<const KernelPlan>> Create(
      const NodeInfo& node, const PlanArgs& args) {
    auto plan = std::make_unique<ResizeKernelPlan>();
    plan->in_ = PictureShapeOf(args.inputs[0].dims);
    plan->out_ = PictureShapeOf(args.outputs[0].dims);
    plan->dtype_ = args.inputs[0].dtype;
    if (args.outputs[0].elements == 0) return plan;
    WEIR_ASSIGN_OR_RETURN(
        const image::ResizeGeometry geometry,
        ResizeGeometryOf(node, plan->in_.height, plan->in_.width));
    WEIR_ASSIGN_OR_RETURN(const image::ResizeFilter filter,
                          ResizeFilterOf(node));
    plan->whole_ = image::ResizePlan::Create(geometry, filter);
    plan->bands_ = PieceCount(plan->in_.picture(), kElementsPerBand,
                              std::min(kMaxBands, plan->out_.height));
    plan->scratch_floats_ = plan->whole_->ScratchFloats(plan->in_.channels);
    plan->row_operations_ =
        SaturatingAdd(SaturatingMul(plan->whole_->y().taps, plan->in_.row()),
                      SaturatingMul(plan->whole_->x().taps, plan->out_.row()));
    return plan;
  }

  size_t scratch_bytes() const override {
    return static_cast<size_t>(Pieces()) * BandScratchBytes();
  }
  size_t held_bytes() const override {
    return whole_.has_value() ? static_cast<size_t>(whole_->table_bytes()) : 0;
  }

  absl::Status Run(const RunArgs& run) const override {
    return dtype_ == DType::kUint8 ? RunTyped<uint8_t>(run)
                                   : RunTyped<float>(run);
  }

 private:
  int64_t Pieces() const { return in_.count * bands_; }
  size_t BandScratchBytes() const {
    return AlignUp(static_cast<size_t>(scratch_floats_) * sizeof(float),
                   kVectorAlignment);
  }

  template <typename T>
  absl::Status RunTyped(const RunArgs& run) const {
    const auto* in = static_cast<const T*>(run.inputs[0]);
    auto* out = static_cast<T*>(run.outputs[0]);
    auto* scratch = static_cast<std::byte*>(run.scratch);
    return ParallelForStatus(run.team, Pieces(), [&](int64_t i) {
      const int64_t band = i % bands_;
      const int64_t picture = i / bands_;
      const int64_t end = out_.height * (band + 1) / bands_;
      const int64_t step = std::max<int64_t>(
          1, kMostOperations / std::max<int64_t>(1, row_operations_));
      GiveUpQuestion question(run.team);
      for (int64_t y = out_.height * band / bands_; y < end; y += step) {
        const image::AxisWindow rows = {y, std::min(end, y + step)};
        if (question.Asked(SaturatingMul(rows.end - y, row_operations_))) break;
        WEIR_RETURN_IF_ERROR((image::Resize<T, T>(
            whole_->Rows(rows),
            image::DenseView(in + picture * in_.picture(), in_.height,
                             in_.width, in_.channels),
            image::DenseView(out + picture * out_.picture() + y * out_.row(),
                             rows.end - y, out_.width, out_.channels),
            {reinterpret_cast<float*>(scratch + static_cast<size_t>(i) *
                                                    BandScratchBytes()),
             static_cast<size_t>(scratch_floats_)})));
      }
      return absl::OkStatus();
    });
  }

  PictureShape in_, out_;
  DType dtype_ = DType::kUint8;
  std::optional<image::ResizePlan> whole_;  // unless there is nothing to do
  int64_t bands_ = 0;
  int64_t scratch_floats_ = 0;
  int64_t row_operations_ = 0;  // of a row of the output
};

// Every operator begins anew with each picture.
constexpr int64_t kPictureOperations = 50;

// What the tables of a resize take for each side's pixels, and their taps.
constexpr int64_t kPixelTableOperations = 15;
constexpr int64_t kTapTableOperations = 7;

// For what moves pixels.
NodeCost PictureCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = OutputCost(node, pace, args);
  AddInTurn(pace, args, PictureShapeOf(args.inputs[0].dims).count,
            kPictureOperations, cost);
  return cost;
}

// The vertical pass over the rows that the output needs, then the horizontal
// one. Between them the CPU holds a row for each piece.
NodeCost ResizeCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  const PictureShape in = PictureShapeOf(args.inputs[0].dims);
  const PictureShape out = PictureShapeOf(args.outputs[0].dims);
  if (args.outputs[0].elements == 0) return cost;
  AddInTurn(pace, args, in.count, kPictureOperations, cost);
  const auto geometry = ResizeGeometryOf(node, in.height, in.width);
  const auto filter = ResizeFilterOf(node);
  if (!geometry.ok() || !filter.ok()) return cost;
  if (args.once) {
    for (const image::AxisGeometry* axis : {&geometry->y, &geometry->x}) {
      AddInTurn(pace, args, axis->out_size,
                kPixelTableOperations +
                    kTapTableOperations * image::TapsOf(*axis, *filter),
                cost);
    }
  }
  if (filter->interpolation == image::Interpolation::kNearest) return cost;
  const int64_t middle = SaturatingMul(in.count * out.height, in.row());
  const auto add = [&cost](int64_t elements, const image::AxisGeometry& axis,
                           const image::ResizeFilter& how) {
    cost.operations = SaturatingAdd(
        cost.operations, SaturatingMul(elements, image::TapsOf(axis, how)));
  };
  add(middle, geometry->y, *filter);
  add(args.outputs[0].elements, geometry->x, *filter);
  cost.scratch_bytes = SaturatingMul(
      in.count * std::min(kMaxBands, out.height) * (in.row() + 16),
      sizeof(float));
  return cost;
}

class ResizeKernel : public Kernel {
 public:
  explicit ResizeKernel(const NodeInfo& node) : node_(node) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return ResizeKernelPlan::Create(node_, args);
  }

 private:
  const NodeInfo node_;
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeResizeKernel(
    const NodeInfo& node, Device&) {
  return std::make_unique<const ResizeKernel>(node);
}

// -- Parts of pictures --------------------------------------------------------

// A part of one picture that is worth a thread, and over soon: whole rows, else
// pixels of one, else channels of one.
struct PicturePart {
  int64_t picture = 0;
  image::AxisWindow y, x, c;

  // The same in memory: `data` is that of all pictures, whose elements are
  // `size` of T each.
  template <typename T>
  image::ImageView<T> Of(T* data, const PictureShape& shape,
                         int64_t size = 1) const {
    const int64_t first = picture * shape.picture() + y.begin * shape.row() +
                          x.begin * shape.channels + c.begin;
    return {data + first * size, y.end - y.begin, x.end - x.begin,
            (c.end - c.begin) * size, shape.row() * size};
  }
};

class PictureParts {
 public:
  explicit PictureParts(const PictureShape& shape) : shape_(shape) {
    if (shape.count == 0 || shape.picture() == 0) return;
    channels_ = std::min(shape.channels, kElements);
    columns_ = std::clamp<int64_t>(kElements / shape.channels, 1, shape.width);
    rows_ = std::clamp<int64_t>(kElements / shape.row(), 1, shape.height);
    per_pixel_ = Ceil(shape.channels, channels_);
    per_row_ = Ceil(shape.width, columns_);
    per_picture_ = Ceil(shape.height, rows_) * per_row_ * per_pixel_;
  }

  int64_t count() const { return shape_.count * per_picture_; }
  bool whole() const { return per_picture_ == 1; }
  PicturePart operator[](int64_t i) const {
    const auto window = [](int64_t part, int64_t step, int64_t size) {
      return image::AxisWindow{part * step, std::min(size, (part + 1) * step)};
    };
    PicturePart part;
    part.picture = i / per_picture_;
    part.c = window(i % per_pixel_, channels_, shape_.channels);
    i = i % per_picture_ / per_pixel_;
    part.x = window(i % per_row_, columns_, shape_.width);
    part.y = window(i / per_row_, rows_, shape_.height);
    return part;
  }

 private:
  // A picture as most models take it is one part.
  static constexpr int64_t kElements = 1 << 18;

  static int64_t Ceil(int64_t size, int64_t step) {
    return (size + step - 1) / step;
  }

  PictureShape shape_;
  int64_t channels_ = 1, columns_ = 1, rows_ = 1;  // of a part
  int64_t per_pixel_ = 1, per_row_ = 1, per_picture_ = 0;
};

// -- Crop and Flip ------------------------------------------------------------

absl::StatusOr<std::unique_ptr<const Kernel>> MakeCropKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const PictureShape in = PictureShapeOf(args.inputs[0].dims);
    const PictureShape out = PictureShapeOf(args.outputs[0].dims);
    const auto element = static_cast<int64_t>(SizeOf(args.inputs[0].dtype));
    WEIR_ASSIGN_OR_RETURN(const CropWindow window,
                          CropWindowOf(node, in.height, in.width));
    return RunFunction([=, parts = PictureParts(out)](const RunArgs& run) {
      ParallelFor(run.team, parts.count(), [&](int64_t i) {
        const PicturePart to = parts[i];
        PicturePart from = to;
        from.y.begin += window.y.begin;
        from.y.end += window.y.begin;
        from.x.begin += window.x.begin;
        from.x.end += window.x.begin;
        // A pixel's bytes are its channels.
        image::FlipPixels(
            from.Of(static_cast<const uint8_t*>(run.inputs[0]), in, element),
            false, false,
            to.Of(static_cast<uint8_t*>(run.outputs[0]), out, element));
      });
      return absl::OkStatus();
    });
  });
}

bool IsSet(const FlipFlag& flag, const RunArgs& run, int64_t picture) {
  if (flag.input == 0) return flag.value;
  const int64_t i = flag.per_picture ? picture : 0;
  return flag.dtype == DType::kBool
             ? static_cast<const uint8_t*>(run.inputs[flag.input])[i] != 0
             : static_cast<const int32_t*>(run.inputs[flag.input])[i] != 0;
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeFlipKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const PictureShape shape = PictureShapeOf(args.inputs[0].dims);
    const auto element = static_cast<int64_t>(SizeOf(args.inputs[0].dtype));
    const FlipFlags flags = FlipFlagsOf(node, args);
    return RunFunction([=, parts = PictureParts(shape)](const RunArgs& run) {
      const auto mirrored = [](image::AxisWindow part, int64_t size) {
        return image::AxisWindow{size - part.end, size - part.begin};
      };
      ParallelFor(run.team, parts.count(), [&](int64_t i) {
        const PicturePart from = parts[i];
        const bool mirror_x = IsSet(flags.horizontal, run, from.picture);
        const bool mirror_y = IsSet(flags.vertical, run, from.picture);
        PicturePart to = from;
        if (mirror_x) to.x = mirrored(from.x, shape.width);
        if (mirror_y) to.y = mirrored(from.y, shape.height);
        image::FlipPixels(
            from.Of(static_cast<const uint8_t*>(run.inputs[0]), shape, element),
            mirror_x, mirror_y,
            to.Of(static_cast<uint8_t*>(run.outputs[0]), shape, element));
      });
      return absl::OkStatus();
    });
  });
}

// -- Normalize ----------------------------------------------------------------

// Integers are rounded half away from zero and saturated.
template <typename T>
void StoreRounded(const float* from, int64_t n, void* to) {
  auto* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = scalar::Convert<T>(std::round(from[i]));
  }
}

void StoreAs(DType dtype, const float* from, int64_t n, void* to) {
  switch (dtype) {
    case DType::kUint8:
      return StoreRounded<uint8_t>(from, n, to);
    case DType::kInt8:
      return StoreRounded<int8_t>(from, n, to);
    default:
      return FindConvertLoop(DType::kFloat, dtype)(from, to, n);
  }
}

class NormalizePlan : public KernelPlan {
 public:
  NormalizePlan(NormalizeSettings settings, const PlanArgs& args)
      : settings_(std::move(settings)),
        shape_(PictureShapeOf(args.inputs[0].dims)),
        parts_(shape_),
        dtype_(args.inputs[0].dtype) {}

  size_t scratch_bytes() const override {
    return settings_.dtype == DType::kFloat
               ? 0
               : static_cast<size_t>(Elements()) * sizeof(float);
  }
  size_t held_bytes() const override {
    return (settings_.mean.size() + settings_.stddev.size()) * sizeof(float);
  }

  absl::Status Run(const RunArgs& run) const override {
    const bool direct = settings_.dtype == DType::kFloat;
    auto* const to = static_cast<float*>(direct ? run.outputs[0] : run.scratch);
    const auto store = [&](int64_t begin, int64_t end) {
      StoreAs(settings_.dtype, to + begin, end - begin,
              static_cast<std::byte*>(run.outputs[0]) +
                  static_cast<size_t>(begin) * SizeOf(settings_.dtype));
    };
    ParallelFor(run.team, parts_.count(), [&](int64_t i) {
      const PicturePart part = parts_[i];
      if (dtype_ == DType::kUint8) {
        NormalizePart<uint8_t>(run, part, to);
      } else {
        NormalizePart<float>(run, part, to);
      }
      if (!direct && parts_.whole()) {
        store(i * shape_.picture(), (i + 1) * shape_.picture());
      }
    });
    if (!direct && !parts_.whole()) {
      ParallelRange(run.team, Elements(), kStoreGrain, store);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kStoreGrain = 1 << 15;

  int64_t Elements() const { return shape_.count * shape_.picture(); }

  // Parts hold whole pixels: their channels are kMaxChannels at most.
  template <typename T>
  void NormalizePart(const RunArgs& run, const PicturePart& part,
                     float* to) const {
    const auto from = part.Of(static_cast<const T*>(run.inputs[0]), shape_);
    const image::Normalization terms = {.mean = settings_.mean,
                                        .stddev = settings_.stddev,
                                        .scale = settings_.scale,
                                        .shift = settings_.shift};
    if (settings_.planes) {
      image::MirrorNormalizeToPlanes<T>(
          from, false, false, terms,
          {to + part.picture * shape_.picture() + part.y.begin * shape_.width +
               part.x.begin,
           shape_.height * shape_.width, shape_.width});
    } else {
      image::Normalize<T>(from, terms, part.Of(to, shape_));
    }
  }

  const NormalizeSettings settings_;
  const PictureShape shape_;
  const PictureParts parts_;
  const DType dtype_;
};

// The CPU computes in float what is then rounded.
NodeCost NormalizeCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  AddInTurn(pace, args, PictureShapeOf(args.inputs[0].dims).count,
            kPictureOperations, cost);
  if (args.outputs[0].dtype != DType::kFloat) {
    cost.scratch_bytes = SaturatingMul(args.outputs[0].elements, 4);
  }
  return cost;
}

class NormalizeKernel : public Kernel {
 public:
  explicit NormalizeKernel(const NodeInfo& node) : node_(node) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    WEIR_ASSIGN_OR_RETURN(
        NormalizeSettings settings,
        NormalizeSettingsOf(node_, args.inputs[0].dims.back()));
    return std::make_unique<const NormalizePlan>(std::move(settings), args);
  }

 private:
  const NodeInfo node_;
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeNormalizeKernel(
    const NodeInfo& node, Device&) {
  return std::make_unique<const NormalizeKernel>(node);
}

}  // namespace

FlipFlags FlipFlagsOf(const NodeInfo& node, const PlanArgs& args) {
  const auto read = [&](size_t input, std::string_view name, bool fallback) {
    FlipFlag flag;
    flag.value = node.attributes.Int(name, fallback ? 1 : 0) != 0;
    if (node.HasInput(input)) {
      flag.input = input;
      flag.dtype = args.inputs[input].dtype;
      flag.per_picture = args.inputs[input].elements > 1;
    }
    return flag;
  };
  return {read(1, "horizontal", true), read(2, "vertical", false)};
}

// -- Attributes ---------------------------------------------------------------

PictureShape PictureShapeOf(absl::Span<const int64_t> dims) {
  const size_t n = dims.size();
  return {.count = n == 4 ? dims[0] : 1,
          .height = dims[n - 3],
          .width = dims[n - 2],
          .channels = dims[n - 1]};
}

absl::StatusOr<image::ResizeFilter> ResizeFilterOf(const NodeInfo& node) {
  image::ResizeFilter filter;
  const std::string name = node.attributes.String("interp_type", "linear");
  if (name == "nearest") {
    filter.interpolation = image::Interpolation::kNearest;
  } else if (name != "linear") {
    return absl::InvalidArgumentError(absl::StrCat(
        "interp_type ", QuoteStart(name), " is neither nearest nor linear"));
  }
  filter.antialias = node.attributes.Int("antialias", 1) != 0;
  return filter;
}

absl::StatusOr<image::ResizeGeometry> ResizeGeometryOf(const NodeInfo& node,
                                                       int64_t height,
                                                       int64_t width) {
  const auto get = [&node](std::string_view name) {
    return static_cast<double>(node.attributes.Float(name, 0));
  };
  return image::MakeResizeGeometry(height, width,
                                   {.x = get("resize_x"),
                                    .y = get("resize_y"),
                                    .shorter = get("resize_shorter"),
                                    .longer = get("resize_longer")});
}

absl::StatusOr<CropWindow> CropWindowOf(const NodeInfo& node, int64_t height,
                                        int64_t width) {
  const auto window =
      [&node](std::string_view size_name, std::string_view position_name,
              int64_t size) -> absl::StatusOr<image::AxisWindow> {
    WEIR_ASSIGN_OR_RETURN(int64_t crop, CropSize(node, size_name));
    if (crop == 0) crop = size;
    const double position =
        static_cast<double>(node.attributes.Float(position_name, 0.5f));
    WEIR_ASSIGN_OR_RETURN(const int64_t begin,
                          image::CropAnchor(size, crop, position));
    return image::AxisWindow{begin, begin + crop};
  };
  CropWindow crop;
  WEIR_ASSIGN_OR_RETURN(crop.y, window("crop_h", "crop_pos_y", height));
  WEIR_ASSIGN_OR_RETURN(crop.x, window("crop_w", "crop_pos_x", width));
  return crop;
}

absl::StatusOr<NormalizeSettings> NormalizeSettingsOf(const NodeInfo& node,
                                                      Dim channels) {
  for (const char* name : {"mean", "stddev"}) {
    const AttributeValue* const value = node.attributes.Find(name);
    const auto* const list = std::get_if<std::vector<float>>(value);
    if (list != nullptr && list->size() > size_t{kMaxChannels}) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " has ", list->size(),
                       " entries, more than a picture has channels, ",
                       kMaxChannels, " at most"));
    }
  }
  NormalizeSettings settings;
  settings.mean = node.attributes.Floats("mean");
  settings.stddev = node.attributes.Floats("stddev");
  if (settings.mean.empty()) settings.mean = {0.0f};
  if (settings.stddev.empty()) settings.stddev = {1.0f};
  settings.scale = node.attributes.Float("scale", 1.0f);
  settings.shift = node.attributes.Float("shift", 0.0f);
  const std::string layout = node.attributes.String("output_layout", "HWC");
  if (layout != "HWC" && layout != "CHW") {
    return absl::InvalidArgumentError(absl::StrCat(
        "output_layout ", QuoteStart(layout), " is neither HWC nor CHW"));
  }
  settings.planes = layout == "CHW";
  const int64_t dtype = node.attributes.Int("dtype", 1);
  settings.dtype = DTypeFromOnnx(dtype).value_or(DType::kInvalid);
  constexpr TypeSet kOutputTypes = {DType::kFloat, DType::kFloat16,
                                    DType::kBfloat16, DType::kUint8,
                                    DType::kInt8};
  if (!kOutputTypes.Has(settings.dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype ", dtype,
        " is none of float (1), uint8 (2), int8 (3), float16 (10) and "
        "bfloat16 (16)"));
  }
  const image::Normalization terms = {.mean = settings.mean,
                                      .stddev = settings.stddev,
                                      .scale = settings.scale};
  const auto given = static_cast<int64_t>(
      std::max(settings.mean.size(), settings.stddev.size()));
  WEIR_RETURN_IF_ERROR(image::CheckNormalization(
      terms, channels.known() ? channels.value() : given));
  return settings;
}

// -- Definitions --------------------------------------------------------------

absl::Status Register_weir_Resize(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Resize";
  def.doc =
      "Resizes pictures (HWC or NHWC) as DALI does: half-pixel centers, the "
      "edge pixel repeated, the filter stretched when shrinking. Give sides, "
      "or the shorter, or the longer one; a side left out keeps the aspect "
      "ratio, a negative size mirrors.";
  def.inputs = {{.name = "input", .types = kPixelTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"resize_x", AttributeType::kFloat, false, "Width in pixels."},
      {"resize_y", AttributeType::kFloat, false, "Height in pixels."},
      {"resize_shorter", AttributeType::kFloat, false,
       "The shorter side in pixels."},
      {"resize_longer", AttributeType::kFloat, false,
       "The longer side in pixels."},
      {"interp_type", AttributeType::kString, false,
       "nearest or linear (default)."},
      {"antialias", AttributeType::kInt, false,
       "1 (default): linear shrinks without aliasing."}};
  def.infer = InferResize;
  def.cost = ResizeCost;
  return registry.Register(std::move(def), MakeResizeKernel);
}

absl::Status Register_weir_Crop(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Crop";
  def.doc =
      "Cuts a rectangle out of pictures (HWC or NHWC). It begins at (size - "
      "crop) * position, rounded half up.";
  def.inputs = {{.name = "input", .types = kFixedTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"crop_w", AttributeType::kFloat, false,
       "Width in pixels; default the picture's."},
      {"crop_h", AttributeType::kFloat, false,
       "Height in pixels; default the picture's."},
      {"crop_pos_x", AttributeType::kFloat, false, "In [0, 1], default 0.5."},
      {"crop_pos_y", AttributeType::kFloat, false, "In [0, 1], default 0.5."}};
  def.infer = InferCrop;
  def.cost = PictureCost;
  return registry.Register(std::move(def), MakeCropKernel);
}

absl::Status Register_weir_Flip(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Flip";
  def.doc =
      "Mirrors pictures (HWC or NHWC): left and right, or top and bottom, or "
      "both. A flag is an attribute or a tensor of one value or one per "
      "picture; the tensor wins.";
  def.inputs = {
      {.name = "input", .types = kFixedTypes},
      {.name = "horizontal",
       .types = kFlagTypes,
       .group = -1,
       .optional = true},
      {.name = "vertical", .types = kFlagTypes, .group = -1, .optional = true}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"horizontal", AttributeType::kInt, false, "0 or 1 (default)."},
      {"vertical", AttributeType::kInt, false, "0 (default) or 1."}};
  def.infer = InferFlip;
  def.cost = PictureCost;
  return registry.Register(std::move(def), MakeFlipKernel);
}

absl::Status Register_weir_Normalize(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Normalize";
  def.doc =
      "(x - mean) / stddev * scale + shift on pictures (HWC or NHWC), with one "
      "mean and stddev or one per channel.";
  def.inputs = {{.name = "input", .types = kPixelTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"mean", AttributeType::kFloats, false, "Default 0."},
      {"stddev", AttributeType::kFloats, false, "Default 1; not 0."},
      {"scale", AttributeType::kFloat, false, "Default 1."},
      {"shift", AttributeType::kFloat, false, "Default 0."},
      {"output_layout", AttributeType::kString, false,
       "HWC (default) or CHW: channels before rows."},
      {"dtype", AttributeType::kInt, false,
       "ONNX's number of the output type: float (1, default), uint8, int8 "
       "(both rounded half away from zero and saturated), float16, "
       "bfloat16."}};
  def.infer = InferNormalize;
  def.cost = NormalizeCost;
  return registry.Register(std::move(def), MakeNormalizeKernel);
}

}  // namespace weir
