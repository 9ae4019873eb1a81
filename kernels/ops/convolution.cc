#include <algorithm>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/ops/convert.h"
#include "kernels/ops/fused_conv.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/movement.h"
#include "kernels/ops/onednn_adapter.h"
#include "kernels/ops/packed_constants.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/spatial_window.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

absl::Status InferConv(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  const SymbolicShape& x = context.input_shape(0);
  const SymbolicShape& w = context.input_shape(1);
  const int64_t groups = node.attributes.Int("group", 1);
  if (groups < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("group of ", groups, " is not positive"));
  }
  if (!x.has_value() || !w.has_value()) {
    context.SetOutput(0, dtype, std::nullopt);
    return absl::OkStatus();
  }
  if (x->size() != w->size() || x->size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("X ", ShapeString(x), " and W ", ShapeString(w),
                     " must have the same rank, at least 3"));
  }
  const Dim channels = (*w)[1] * Dim(groups);
  const bool divides = !(*w)[0].known() || (*w)[0].value() % groups == 0;
  if (channels.invalid() || (*x)[1].SurelyDiffers(channels) || !divides) {
    return absl::InvalidArgumentError(
        absl::StrCat("W ", ShapeString(w), " with group ", groups,
                     " does not fit X ", ShapeString(x)));
  }
  if (node.HasInput(2) && context.input_shape(2).has_value()) {
    const SymbolicDims& b = *context.input_shape(2);
    if (b.size() != 1 || b[0].SurelyDiffers((*w)[0])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "B ", ShapeString(b), " does not fit W ", ShapeString(w)));
    }
  }
  const auto spatial = static_cast<int>(x->size()) - 2;
  const std::optional<Dims> kernel =
      ToConcrete(SymbolicDims(w->begin() + 2, w->end()));
  SymbolicDims out = {(*x)[0], (*w)[0]};
  if (!kernel.has_value() && !node.attributes.Has("kernel_shape")) {
    out.resize(x->size());
  } else {
    WEIR_ASSIGN_OR_RETURN(
        const SpatialWindow window,
        ParseSpatialWindow(node, spatial,
                           kernel.has_value() ? absl::MakeConstSpan(*kernel)
                                              : absl::Span<const int64_t>()));
    for (int i = 0; i < spatial; ++i) {
      WEIR_ASSIGN_OR_RETURN(
          const Dim size,
          OutputSize(window, i, (*x)[static_cast<size_t>(i) + 2]));
      out.push_back(size);
    }
  }
  context.SetOutput(0, dtype, std::move(out));
  return absl::OkStatus();
}

// With what aligns them.
int64_t FloatsAtMost(int64_t elements) {
  return SaturatingAdd(SaturatingMul(elements, sizeof(float)), 255);
}

// What a call of the library for one image takes a CPU, some microseconds, in
// products.
constexpr int64_t kImageOperations = 50'000;
// What one tap of a plane takes our own loops, and an element without any: 2
// ns, of doubles 10.
constexpr int64_t kTapOperations = 20;
// To find the bias of an output that is nothing else.
constexpr int64_t kBiasOperations = 100;

absl::StatusOr<onednn::ConvolutionSpec> MakeSpec(const NodeInfo& node,
                                                 const PlanArgs& args) {
  const Dims& x = args.inputs[0].dims;
  const Dims& w = args.inputs[1].dims;
  const Dims& y = args.outputs[0].dims;
  const size_t spatial = x.size() - 2;
  WEIR_ASSIGN_OR_RETURN(const SpatialWindow parsed,
                        ParseSpatialWindow(node, static_cast<int>(spatial),
                                           absl::MakeConstSpan(w).subspan(2)));
  const SpatialWindow window =
      ResolvePads(parsed, absl::MakeConstSpan(x).subspan(2));
  onednn::ConvolutionSpec spec;
  spec.batch = x[0];
  spec.in_channels = x[1];
  spec.out_channels = w[0];
  spec.groups = node.attributes.Int("group", 1);
  spec.bias = node.HasInput(2);
  spec.residual = node.HasInput(kFusedConvResidual);
  WEIR_RETURN_IF_ERROR(CheckResidual(args));
  const FusedActivation activation = FusedActivationOf(node);
  using Kind = FusedActivation::Kind;
  using Activation = onednn::ConvolutionSpec::Activation;
  spec.activation = activation.kind == Kind::kRelu   ? Activation::kRelu
                    : activation.kind == Kind::kClip ? Activation::kClip
                                                     : Activation::kNone;
  spec.low = activation.low;
  spec.high = activation.high;
  spec.channels_last = IsChannelsLast(args);
  // A single axis is a row of a picture, not a column: rows are dense.
  const size_t first = spatial == 1 ? 1 : 0;
  for (size_t i = 0; i < spatial; ++i) {
    const WindowAxis& axis = window.axes[i];
    spec.in[first + i] = x[i + 2];
    spec.out[first + i] = y[i + 2];
    spec.kernel[first + i] = axis.kernel;
    spec.stride[first + i] = axis.stride;
    spec.dilation[first + i] = axis.dilation;
    spec.pad_begin[first + i] = axis.pad_begin;
  }
  return spec;
}

// How many of that many products wait for an input that is beyond the caches
// and in another line than the one before, as our own loops go.
int64_t FarReads(const onednn::ConvolutionSpec& s, const TensorMeta& x,
                 int64_t products) {
  const auto bytes = static_cast<int64_t>(SizeOf(ComputeType(x.dtype)));
  if (SaturatingMul(x.elements, bytes) <= int64_t{kCachedBytes}) return 0;
  const int64_t plane = SaturatingMul(s.in[1], s.in[2]);
  const struct {
    int64_t times;
    int64_t apart;  // in elements
  } loops[] = {{s.out[2], s.stride[2]},
               {s.out[1], SaturatingMul(s.stride[1], s.in[2])},
               {s.out[0], SaturatingMul(s.stride[0], plane)},
               {s.kernel[2], s.dilation[2]},
               {s.kernel[1], SaturatingMul(s.dilation[1], s.in[2])},
               {s.kernel[0], SaturatingMul(s.dilation[0], plane)},
               {s.in_channels / s.groups, SaturatingMul(s.in[0], plane)}};
  for (const auto& [times, apart] : loops) {
    if (times <= 1) continue;
    return SaturatingMul(apart, bytes) < kLineBytes ? products / times
                                                    : products;
  }
  return products;
}

// The CPU lays inputs and outputs out anew, which takes as long as moving
// elements, and computes in float what is a half type.
NodeCost ConvCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  const TensorMeta& x = args.inputs[0];
  const TensorMeta& w = args.inputs[1];
  const TensorMeta& y = args.outputs[0];
  NodeCost cost = LinearCost(node, pace, args);
  const int64_t taps = w.dims[0] == 0 ? 0 : w.elements / w.dims[0];
  int64_t products = SaturatingMul(
      y.elements, taps > 0 || pace != Pace::kInTurn ? taps : kBiasOperations);
  const bool half = ComputeType(x.dtype) != x.dtype;
  for (int copies = half ? 2 : 1; copies > 0; --copies) {
    for (const TensorMeta* meta : {&x, &w, &y}) {
      cost.scratch_bytes =
          SaturatingAdd(cost.scratch_bytes, FloatsAtMost(meta->elements));
    }
  }
  if (pace == Pace::kInTurn) {
    // Without the library; those of doubles whoever adds costs up weighs, as
    // products and not as elements.
    const bool own = args.once || x.dtype == DType::kDouble;
    const bool weighed = x.dtype == DType::kDouble;
    const absl::StatusOr<onednn::ConvolutionSpec> spec = MakeSpec(node, args);
    const int64_t far = own && spec.ok() ? FarReads(*spec, x, products) : 0;
    const int64_t waits = SaturatingMul(far, kFarReadOperations);
    if (own && !weighed) {
      products = SaturatingMul(products, kOwnProductCpuWeight);
    }
    products = SaturatingAdd(
        products,
        SaturatingMul(waits, weighed ? kElementCpuWeight / kOwnProductCpuWeight
                                     : kElementCpuWeight));
    // Our own loops go over planes tap by tap, also where one meets no input.
    products = SaturatingAdd(
        products,
        SaturatingMul(SaturatingMul(x.dims[0], w.elements), kTapOperations));
    cost.operations = SaturatingAdd(
        SaturatingMul(cost.operations,
                      kElementCpuWeight + (half ? kHalfTypeCpuWeight : 0)),
        products);
    if (!own) {
      AddInTurn(pace, args, x.dims[0], kImageOperations, cost);
    }
    return cost;
  }
  cost.operations = SaturatingAdd(cost.operations, products);
  return cost;
}

// Output positions t for which t * stride + offset lies in [0, size).
struct Reach {
  int64_t begin;
  int64_t end;
};

Reach Covered(int64_t offset, int64_t stride, int64_t size, int64_t count) {
  const auto ceil_div = [stride](int64_t n) {
    return n <= 0 ? 0 : (n + stride - 1) / stride;
  };
  const int64_t begin = std::min(count, ceil_div(-offset));
  return {begin, std::max(begin, std::min(count, ceil_div(size - offset)))};
}

// One output plane, tap by tap: each tap adds a scaled, shifted input plane.
template <typename T>
void ConvolvePlane(const onednn::ConvolutionSpec& s, CpuTeam* team, const T* x,
                   const T* w, T bias, T* y) {
  // A plane and its taps may be as large as a tensor, each.
  GiveUpQuestion given_up(team);
  const int64_t in_plane = s.in[0] * s.in[1] * s.in[2];
  const int64_t out_plane = s.out[0] * s.out[1] * s.out[2];
  std::fill_n(y, out_plane, bias);
  for (int64_t c = 0; c < s.in_channels / s.groups; ++c, x += in_plane) {
    for (int64_t k0 = 0; k0 < s.kernel[0]; ++k0) {
      const int64_t o0 = k0 * s.dilation[0] - s.pad_begin[0];
      const Reach r0 = Covered(o0, s.stride[0], s.in[0], s.out[0]);
      for (int64_t k1 = 0; k1 < s.kernel[1]; ++k1) {
        const int64_t o1 = k1 * s.dilation[1] - s.pad_begin[1];
        const Reach r1 = Covered(o1, s.stride[1], s.in[1], s.out[1]);
        for (int64_t k2 = 0; k2 < s.kernel[2]; ++k2) {
          const T weight = *w++;
          const int64_t o2 = k2 * s.dilation[2] - s.pad_begin[2];
          const Reach r2 = Covered(o2, s.stride[2], s.in[2], s.out[2]);
          if (given_up.Asked(1 + (r0.end - r0.begin) * (r1.end - r1.begin) *
                                     (r2.end - r2.begin))) {
            return;
          }
          for (int64_t i = r0.begin; i < r0.end; ++i) {
            for (int64_t j = r1.begin; j < r1.end; ++j) {
              const T* from =
                  x +
                  ((i * s.stride[0] + o0) * s.in[1] + (j * s.stride[1] + o1)) *
                      s.in[2] +
                  o2;
              T* to = y + (i * s.out[1] + j) * s.out[2];
              for (int64_t l = r2.begin; l < r2.end; ++l) {
                to[l] += weight * from[l * s.stride[2]];
              }
            }
          }
        }
      }
    }
  }
}

// By loops of our own, which know no limits: double, and what oneDNN cannot
// count.
template <typename T>
void Convolve(const onednn::ConvolutionSpec& s, CpuTeam* team, const T* x,
              const T* w, const T* b, T* y) {
  const int64_t in_plane = s.in[0] * s.in[1] * s.in[2];
  const int64_t out_plane = s.out[0] * s.out[1] * s.out[2];
  const int64_t group_in = s.in_channels / s.groups;
  const int64_t group_out = s.out_channels / s.groups;
  const int64_t taps = group_in * s.kernel[0] * s.kernel[1] * s.kernel[2];
  ParallelFor(team, s.batch * s.out_channels, [&](int64_t i) {
    const int64_t image = i / s.out_channels;
    const int64_t channel = i % s.out_channels;
    const int64_t first =
        image * s.in_channels + channel / group_out * group_in;
    ConvolvePlane<T>(s, team, x + first * in_plane, w + channel * taps,
                     b == nullptr ? T{0} : b[channel], y + i * out_plane);
  });
}

// oneDNN counts sides, steps and padding in int.
bool FitsOneDnn(const onednn::ConvolutionSpec& s) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  bool fits = s.batch <= kMost && s.in_channels <= kMost &&
              s.out_channels <= kMost && s.groups <= kMost;
  for (size_t i = 0; i < 3; ++i) {
    const int64_t reach = (s.kernel[i] - 1) * s.dilation[i] + 1;
    // Where the last window ends; both factors are below 2^40.
    const double end =
        static_cast<double>(s.out[i] - 1) * static_cast<double>(s.stride[i]) +
        static_cast<double>(reach);
    fits = fits && s.in[i] <= kMost && s.out[i] <= kMost &&
           s.stride[i] <= kMost && reach <= kMost && s.pad_begin[i] <= kMost &&
           end <= static_cast<double>(kMost);
  }
  return fits;
}

// A row with a kernel about as long as itself: what the library prepares for
// it, and then does in one call, has no bound that we know.
bool IsOneLongCall(const onednn::ConvolutionSpec& s) {
  constexpr int64_t kLongKernel = 4096;
  constexpr int64_t kMostProducts = int64_t{1} << 36;
  const int64_t kernel = s.kernel[1] * s.kernel[2];
  if (kernel <= kLongKernel) return false;
  int64_t products = SaturatingMul(kernel, s.out[1] * s.out[2]);
  for (const int64_t factor :
       {s.kernel[0], s.in_channels / s.groups, s.out_channels}) {
    products = SaturatingMul(products, factor);
  }
  return products > kMostProducts;
}

// What is done to each element alone, between two questions whether to go on.
constexpr int64_t kGrain = int64_t{1} << 16;

void Convert(CpuTeam* team, DType from_type, const void* from, DType to_type,
             void* to, int64_t elements) {
  const ConvertLoop loop = FindConvertLoop(from_type, to_type);
  ParallelRange(team, elements, kGrain, [&](int64_t begin, int64_t end) {
    const auto at = static_cast<size_t>(begin);
    loop(static_cast<const std::byte*>(from) + at * SizeOf(from_type),
         static_cast<std::byte*>(to) + at * SizeOf(to_type), end - begin);
  });
}

void FinishAll(const onednn::ConvolutionSpec& spec, CpuTeam* team,
               const float* residual, float* sums, int64_t elements) {
  ParallelRange(team, elements, kGrain, [&](int64_t begin, int64_t end) {
    onednn::Finish(spec, residual == nullptr ? nullptr : residual + begin,
                   sums + begin, end - begin);
  });
}

size_t FloatBytes(int64_t elements) {
  return AlignUp(static_cast<size_t>(elements) * sizeof(float),
                 kVectorAlignment);
}

// float by oneDNN, or without it by loops of our own, as for a plan that runs
// once: the library's code takes milliseconds to generate. The half types are
// converted to float around it. Constant weights are packed when the plan is
// made.
class FloatConvolution : public KernelPlan {
 public:
  static absl::StatusOr<std::unique_ptr<const KernelPlan>> Make(
      const onednn::ConvolutionSpec& spec, const PlanArgs& args) {
    auto made = std::make_unique<FloatConvolution>();
    made->spec_ = spec;
    if (!args.once && FitsOneDnn(spec) && !IsOneLongCall(spec)) {
      WEIR_ASSIGN_OR_RETURN(made->convolution_,
                            onednn::Convolution::Create(spec));
    }
    made->dtype_ = args.inputs[0].dtype;
    for (const TensorMeta& input : args.inputs) {
      made->elements_.push_back(input.elements);
    }
    made->output_elements_ = args.outputs[0].elements;
    WEIR_RETURN_IF_ERROR(made->HoldWeights(args));
    return std::unique_ptr<const KernelPlan>(std::move(made));
  }

  size_t scratch_bytes() const override {
    size_t bytes = OwnBytes();
    if (dtype_ != DType::kFloat) {
      for (size_t i = 0; i < elements_.size(); ++i) {
        if (Reads(i)) bytes += FloatBytes(elements_[i]);
      }
      bytes += FloatBytes(output_elements_);
    }
    return bytes;
  }

  size_t held_bytes() const override {
    return convolution_ == nullptr ? 0 : convolution_->held_bytes();
  }

  std::vector<SharedHold> shared_holds() const override {
    if (convolution_ == nullptr) return {};
    return convolution_->shared_holds();
  }

  std::string implementation() const override {
    return convolution_ == nullptr ? "" : convolution_->implementation();
  }

  absl::Status Run(const RunArgs& run) const override {
    onednn::Convolution::Operands operands;
    const float** const into[kFusedConvInputs] = {
        &operands.input, &operands.weights, &operands.bias, &operands.residual};
    operands.held = weights_.get();
    std::byte* next = static_cast<std::byte*>(run.scratch) + OwnBytes();
    for (size_t i = 0; i < elements_.size(); ++i) {
      if (run.inputs[i] == nullptr || !Reads(i)) continue;
      if (dtype_ == DType::kFloat) {
        *into[i] = static_cast<const float*>(run.inputs[i]);
        continue;
      }
      Convert(run.team, dtype_, run.inputs[i], DType::kFloat, next,
              elements_[i]);
      *into[i] = reinterpret_cast<const float*>(next);
      next += FloatBytes(elements_[i]);
    }
    if (dtype_ == DType::kFloat) {
      operands.output = static_cast<float*>(run.outputs[0]);
      return RunFloat(run, operands);
    }
    operands.output = reinterpret_cast<float*>(next);
    WEIR_RETURN_IF_ERROR(RunFloat(run, operands));
    Convert(run.team, DType::kFloat, next, dtype_, run.outputs[0],
            output_elements_);
    return absl::OkStatus();
  }

 private:
  bool Reads(size_t i) const { return i != 1 || weights_ == nullptr; }

  size_t OwnBytes() const {
    if (convolution_ != nullptr) {
      return AlignUp(convolution_->scratch_bytes(weights_ == nullptr),
                     kVectorAlignment);
    }
    return spec_.channels_last
               ? FloatBytes(elements_[0]) + FloatBytes(output_elements_)
               : 0;
  }

  absl::Status RunFloat(const RunArgs& run,
                        const onednn::Convolution::Operands& operands) const {
    if (convolution_ != nullptr) {
      return convolution_->Run(run.team, operands, run.scratch);
    }
    const float* x = operands.input;
    float* y = operands.output;
    if (spec_.channels_last) {
      auto* const scratch = static_cast<std::byte*>(run.scratch);
      RelayoutCopy({spec_.batch, spec_.in_channels,
                    spec_.in[0] * spec_.in[1] * spec_.in[2]},
                   Layout::kChannelsLast, sizeof(float))
          .Run(run.team, x, scratch);
      x = reinterpret_cast<const float*>(scratch);
      y = reinterpret_cast<float*>(scratch + FloatBytes(elements_[0]));
    }
    Convolve(spec_, run.team, x, operands.weights, operands.bias, y);
    if (spec_.channels_last) {
      RelayoutCopy({spec_.batch, spec_.out_channels,
                    spec_.out[0] * spec_.out[1] * spec_.out[2]},
                   Layout::kRowMajor, sizeof(float))
          .Run(run.team, y, operands.output);
    }
    FinishAll(spec_, run.team, operands.residual, operands.output,
              output_elements_);
    return absl::OkStatus();
  }

  absl::Status HoldWeights(const PlanArgs& args) {
    const void* const constant = args.Constant(1);
    if (constant == nullptr || args.packed == nullptr ||
        convolution_ == nullptr) {
      return absl::OkStatus();
    }
    std::vector<std::shared_ptr<const std::byte>> packed;
    for (size_t form = 0; form < convolution_->forms(); ++form) {
      WEIR_ASSIGN_OR_RETURN(
          packed.emplace_back(),
          args.packed->Get(
              constant,
              absl::StrCat(static_cast<int>(dtype_), "/",
                           convolution_->FormName(form)),
              convolution_->FormBytes(form), [&](std::byte* to) {
                if (dtype_ == DType::kFloat) {
                  return convolution_->Pack(
                      form, static_cast<const float*>(constant), to);
                }
                const auto elements = static_cast<size_t>(elements_[1]);
                const std::unique_ptr<float[]> wide(
                    new (std::nothrow) float[elements]);
                if (wide == nullptr) {
                  return ShortOfHostMemory(absl::ResourceExhaustedError(
                      absl::StrCat("no memory for ", elements,
                                   " floats of a constant to pack")));
                }
                FindConvertLoop(dtype_, DType::kFloat)(constant, wide.get(),
                                                       elements_[1]);
                return convolution_->Pack(form, wide.get(), to);
              }));
      if (packed.back() == nullptr) return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(weights_, convolution_->Hold(std::move(packed)));
    return absl::OkStatus();
  }

  onednn::ConvolutionSpec spec_;
  std::unique_ptr<const onednn::Convolution> convolution_;  // null: our loops
  std::shared_ptr<const onednn::Convolution::Weights> weights_;
  DType dtype_ = DType::kInvalid;
  std::vector<int64_t> elements_;  // of the inputs
  int64_t output_elements_ = 0;
};

// Nothing to sum over (no input channels): the bias everywhere.
absl::Status FillWithBias(int64_t channels, int64_t plane, size_t element,
                          int64_t images, const RunArgs& run) {
  auto* to = static_cast<std::byte*>(run.outputs[0]);
  const auto* bias = run.inputs.size() > 2
                         ? static_cast<const std::byte*>(run.inputs[2])
                         : nullptr;
  ParallelRange(run.team, images * channels * plane, kGrain,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const auto channel =
                        static_cast<size_t>(i / plane % channels);
                    std::byte* at = to + static_cast<size_t>(i) * element;
                    if (bias == nullptr) {
                      std::fill_n(at, element, std::byte{0});
                    } else {
                      std::copy_n(bias + channel * element, element, at);
                    }
                  }
                });
  return absl::OkStatus();
}

// The same in any layout, and what is fused with it: float alone.
absl::Status FillFused(const onednn::ConvolutionSpec& spec, int64_t elements,
                       const RunArgs& run) {
  const auto* bias =
      spec.bias ? static_cast<const float*>(run.inputs[2]) : nullptr;
  const auto* residual =
      spec.residual ? static_cast<const float*>(run.inputs[kFusedConvResidual])
                    : nullptr;
  const int64_t plane =
      spec.channels_last ? 1 : spec.out[0] * spec.out[1] * spec.out[2];
  auto* to = static_cast<float*>(run.outputs[0]);
  ParallelRange(run.team, elements, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i / plane % spec.out_channels;
      to[i] = bias == nullptr ? 0.0f : bias[channel];
    }
  });
  FinishAll(spec, run.team, residual, to, elements);
  return absl::OkStatus();
}

class ConvolutionKernel : public Kernel {
 public:
  explicit ConvolutionKernel(const NodeInfo& node) : node_(node) {}

  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    WEIR_ASSIGN_OR_RETURN(const onednn::ConvolutionSpec spec,
                          MakeSpec(node_, args));
    const TensorMeta& y = args.outputs[0];
    if (y.elements == 0) {
      return Function([](const RunArgs&) { return absl::OkStatus(); });
    }
    if (args.inputs[0].elements == 0 &&
        (spec.channels_last || node_.op == kFusedConvName)) {
      return Function([spec, elements = y.elements](const RunArgs& run) {
        return FillFused(spec, elements, run);
      });
    }
    if (args.inputs[0].elements == 0) {
      const int64_t plane = y.elements / (y.dims[0] * y.dims[1]);
      return Function([y, plane](const RunArgs& run) {
        return FillWithBias(y.dims[1], plane, SizeOf(y.dtype), y.dims[0], run);
      });
    }
    if (y.dtype == DType::kDouble) {
      return Function([spec](const RunArgs& run) {
        Convolve(
            spec, run.team, static_cast<const double*>(run.inputs[0]),
            static_cast<const double*>(run.inputs[1]),
            spec.bias ? static_cast<const double*>(run.inputs[2]) : nullptr,
            static_cast<double*>(run.outputs[0]));
        return absl::OkStatus();
      });
    }
    return FloatConvolution::Make(spec, args);
  }

 private:
  static std::unique_ptr<const KernelPlan> Function(RunFunction run) {
    return MakePlan(std::move(run));
  }

  const NodeInfo node_;
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeConvolutionKernel(
    const NodeInfo& node, Device&) {
  return std::make_unique<const ConvolutionKernel>(node);
}

// In half types each of the nodes would round by itself.
bool IsFloat(const NodeInfo& node) {
  return node.input_types[0] == DType::kFloat;
}

std::vector<AttributeDef> ConvolutionAttributes() {
  return {{"auto_pad", AttributeType::kString, false,
           "NOTSET (default: pads), VALID, SAME_UPPER or SAME_LOWER."},
          {"dilations", AttributeType::kInts, false, "Per axis, default 1."},
          {"group", AttributeType::kInt, false, "Default 1."},
          {"kernel_shape", AttributeType::kInts, false, "Default: W's."},
          {"pads", AttributeType::kInts, false,
           "All begins, then all ends; default 0, not negative."},
          {"strides", AttributeType::kInts, false, "Per axis, default 1."}};
}

}  // namespace

FusedActivation FusedActivationOf(const NodeInfo& node) {
  const std::string name = node.attributes.String(kFusedConvActivation, "");
  FusedActivation activation;
  if (name == "Relu") activation.kind = FusedActivation::Kind::kRelu;
  if (name == "Clip") activation.kind = FusedActivation::Kind::kClip;
  activation.low = node.attributes.Float(kFusedConvLow, 0);
  activation.high = node.attributes.Float(kFusedConvHigh, 0);
  return activation;
}

bool IsChannelsLast(const PlanArgs& args) {
  return args.inputs[0].layout == Layout::kChannelsLast ||
         args.outputs[0].layout == Layout::kChannelsLast;
}

absl::Status CheckResidual(const PlanArgs& args) {
  if (args.inputs.size() <= kFusedConvResidual) return absl::OkStatus();
  const TensorMeta& residual = args.inputs[kFusedConvResidual];
  const Dims& y = args.outputs[0].dims;
  if (residual.dtype == DType::kInvalid || residual.dims == y) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("what is added, ", DimsString(residual.dims),
                   ", has not the shape of the convolution, ", DimsString(y)));
}

absl::Status Register_onnx_Conv(OpRegistry& registry) {
  OpDef def;
  def.name = "Conv";
  def.doc =
      "Convolution over 1 to 3 spatial axes, N x C x spatial, in groups. Half "
      "types are computed in float.";
  def.inputs = {{.name = "X", .types = kFloatTypes},
                {.name = "W", .types = kFloatTypes},
                {.name = "B", .types = kFloatTypes, .optional = true}};
  def.outputs = {{.name = "Y"}};
  def.attributes = ConvolutionAttributes();
  def.infer = InferConv;
  def.cost = ConvCost;
  def.cpu_weight = kProductCpuWeight;
  return registry.Register(std::move(def), MakeConvolutionKernel,
                           {.channels_last = IsFloat});
}

absl::Status Register_weir_FusedConv(OpRegistry& registry) {
  OpDef def;
  def.domain = kFusedConvDomain;
  def.name = kFusedConvName;
  def.doc = "Conv, a tensor added to it, and an activation, as one step.";
  def.internal = true;
  def.inputs = {{.name = "X", .types = kFloatTypes},
                {.name = "W", .types = kFloatTypes},
                {.name = "B", .types = kFloatTypes, .optional = true},
                {.name = "R", .types = kFloatTypes, .optional = true}};
  def.outputs = {{.name = "Y"}};
  def.attributes = ConvolutionAttributes();
  def.attributes.push_back({kFusedConvActivation, AttributeType::kString, false,
                            "None (default), Relu or Clip."});
  def.attributes.push_back(
      {kFusedConvLow, AttributeType::kFloat, false, "Of Clip."});
  def.attributes.push_back(
      {kFusedConvHigh, AttributeType::kFloat, false, "Of Clip."});
  def.infer = InferConv;
  def.cost = ConvCost;
  def.cpu_weight = kProductCpuWeight;
  return registry.Register(std::move(def), MakeConvolutionKernel,
                           {.takes = IsFloat, .channels_last = IsFloat});
}

}  // namespace weir
