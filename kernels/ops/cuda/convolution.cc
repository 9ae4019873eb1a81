// Conv by cuDNN. Padding that differs between the two sides of an axis is
// written out first. With a bias, half types are computed in float, so that the
// result is rounded once.
#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cudnn.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/spatial_window.h"

namespace weir::cuda {
namespace {

absl::StatusOr<cudnnDataType_t> CudnnType(DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return CUDNN_DATA_FLOAT;
    case DType::kDouble:
      return CUDNN_DATA_DOUBLE;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBfloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return absl::UnimplementedError("Conv of integers on a CUDA device");
  }
}

// What cuDNN takes, and adds up, in int.
absl::Status CheckInt(int64_t value, std::string_view what) {
  if (value <= std::numeric_limits<int>::max()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(absl::string_view(what.data(), what.size()), " of ", value,
                   "; cuDNN takes 2^31 - 1"));
}

absl::StatusOr<std::vector<int>> Ints(absl::Span<const int64_t> dims) {
  std::vector<int> result;
  for (int64_t d : dims) {
    WEIR_RETURN_IF_ERROR(CheckInt(d, "a side"));
    result.push_back(static_cast<int>(d));
  }
  // cuDNN wants two spatial axes.
  if (result.size() == 3) result.insert(result.begin() + 2, 1);
  return result;
}

struct Padding {
  GeneratedKernel kernel;
  Dims in_dims, out_dims, before;
  uint64_t elements = 0;
};

absl::Status RunPadding(const Padding& pad, const RunArgs& run, void* out) {
  Words words;
  words.Add(run.inputs[0]).Add(out).Add(static_cast<const void*>(nullptr));
  words.Add(pad.elements).Add(uint64_t{pad.in_dims.size()}).Add(0);
  words.AddArray(pad.out_dims, 8).AddArray(pad.in_dims, 8);
  words.AddArray(DenseStrides(pad.in_dims), 8).AddArray(pad.before, 8);
  return pad.kernel.Launch(run.stream, GridFor(pad.elements), words);
}

bool IsHalf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

// Rounds a size in scratch up, so that what follows is aligned.
size_t Aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// The bias of each output channel, over the dims of the output.
Operand BiasOperand(DType dtype, const Dims& out) {
  Dims strides(out.size(), 0);
  if (out[1] != 1) strides[1] = 1;
  return {dtype, std::move(strides), 0};
}

// Sums of nothing: the bias alone, or 0.
absl::StatusOr<PlannedRun> PlanBiasAlone(CudaDevice* device,
                                         const PlanArgs& args) {
  const TensorMeta& out = args.outputs[0];
  if (IsMissing(args, 2)) {
    return PlannedRun{[bytes = out.bytes](const RunArgs& run) {
      return run.stream.Fill(run.outputs[0], 0, bytes);
    }};
  }
  ElementwiseSpec copy;
  copy.expression = "x0";
  copy.output = out.dtype;
  copy.dims = out.dims;
  copy.inputs = {BiasOperand(out.dtype, out.dims)};
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> expand,
                        ElementwiseLoop::Make(device, copy));
  return PlannedRun{[expand](const RunArgs& run) {
    return expand->Run(run.stream, run.inputs.subspan(2, 1), run.outputs[0],
                       run.node_index);
  }};
}

// Dense elements of a half type to floats.
struct Widening {
  std::shared_ptr<const ElementwiseLoop> loop;
  size_t bytes = 0;  // of the floats
};

absl::StatusOr<Widening> MakeWidening(CudaDevice* device, DType dtype,
                                      int64_t elements) {
  ElementwiseSpec spec;
  spec.expression = "x0";
  spec.output = DType::kFloat;
  spec.dims = {elements};
  spec.inputs = {{dtype, {1}, 0}};
  Widening widening;
  WEIR_ASSIGN_OR_RETURN(widening.loop, ElementwiseLoop::Make(device, spec));
  widening.bytes = Aligned(static_cast<size_t>(elements) * sizeof(float));
  return widening;
}

absl::StatusOr<PlannedRun> PlanConvolution(const NodeInfo& node,
                                           CudaDevice* device, Cudnn* cudnn,
                                           const PlanArgs& args) {
  const TensorMeta& in = args.inputs[0];
  const TensorMeta& weights = args.inputs[1];
  const TensorMeta& out = args.outputs[0];
  const int rank = static_cast<int>(in.dims.size()) - 2;
  if (rank < 1 || rank > kMaxSpatialRank) {
    return absl::UnimplementedError(
        absl::StrCat("Conv over ", rank, " spatial axes"));
  }
  if (out.elements == 0) {
    return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
  }
  if (in.elements == 0 || weights.elements == 0) {
    return PlanBiasAlone(device, args);
  }
  WEIR_ASSIGN_OR_RETURN(
      const SpatialWindow parsed,
      ParseSpatialWindow(node, rank,
                         absl::MakeConstSpan(weights.dims).subspan(2)));
  const SpatialWindow window =
      ResolvePads(parsed, absl::MakeConstSpan(in.dims).subspan(2));
  ConvolutionSpec spec;
  const bool has_bias = !IsMissing(args, 2);
  const bool widens = has_bias && IsHalf(in.dtype);
  const DType computed = widens ? DType::kFloat : in.dtype;
  WEIR_ASSIGN_OR_RETURN(spec.type, CudnnType(computed));
  spec.exact_in_tf32 = widens;
  WEIR_RETURN_IF_ERROR(CheckInt(node.attributes.Int("group", 1), "a group"));
  spec.groups = static_cast<int>(node.attributes.Int("group", 1));
  Dims padded = in.dims;
  Dims before(in.dims.size(), 0);
  if (rank == 1) {
    spec.pad.push_back(0);
    spec.stride.push_back(1);
    spec.dilation.push_back(1);
  }
  bool even = true;
  for (const WindowAxis& axis : window.axes) {
    even &= axis.pad_begin == axis.pad_end;
  }
  for (size_t d = 0; d < static_cast<size_t>(rank); ++d) {
    const WindowAxis& axis = window.axes[d];
    WEIR_RETURN_IF_ERROR(CheckInt(axis.reach(), "a window"));
    WEIR_RETURN_IF_ERROR(CheckInt(
        in.dims[d + 2] + axis.pad_begin + axis.pad_end, "a padded side"));
    spec.pad.push_back(even ? static_cast<int>(axis.pad_begin) : 0);
    spec.stride.push_back(static_cast<int>(axis.stride));
    spec.dilation.push_back(static_cast<int>(axis.dilation));
    if (!even) {
      padded[d + 2] += axis.pad_begin + axis.pad_end;
      before[d + 2] = axis.pad_begin;
    }
  }
  WEIR_ASSIGN_OR_RETURN(spec.in, Ints(padded));
  WEIR_ASSIGN_OR_RETURN(spec.weights, Ints(weights.dims));
  WEIR_ASSIGN_OR_RETURN(spec.out, Ints(out.dims));
  WEIR_RETURN_IF_ERROR(device->Activate());
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const Convolution> convolution,
                        cudnn->Prepare(spec));

  WEIR_ASSIGN_OR_RETURN(const int64_t padded_elements, NumElements(padded));
  std::shared_ptr<Padding> padding;
  size_t padded_bytes = 0;
  if (!even) {
    padding = std::make_shared<Padding>();
    WEIR_ASSIGN_OR_RETURN(
        padding->kernel,
        GeneratedKernel::Make(
            device, absl::StrCat(std::string(PreludeSource()),
                                 Define("E", WordType(SizeOf(in.dtype))),
                                 Define("MOVE_PAD", "1"),
                                 std::string(MovementSource()))));
    padding->in_dims = in.dims;
    padding->out_dims = padded;
    padding->before = before;
    padding->elements = static_cast<uint64_t>(padded_elements);
    padded_bytes = Aligned(padding->elements * SizeOf(in.dtype));
  }
  Widening widen_in, widen_weights;
  size_t sums_bytes = 0;
  if (widens) {
    WEIR_ASSIGN_OR_RETURN(widen_in,
                          MakeWidening(device, in.dtype, padded_elements));
    WEIR_ASSIGN_OR_RETURN(widen_weights,
                          MakeWidening(device, in.dtype, weights.elements));
    sums_bytes = Aligned(static_cast<size_t>(out.elements) * sizeof(float));
  }
  std::shared_ptr<const ElementwiseLoop> add_bias;
  if (has_bias) {
    ElementwiseSpec bias;
    bias.expression = "Add(x0, x1)";
    bias.output = out.dtype;
    bias.dims = out.dims;
    bias.inputs = {{computed, DenseStrides(out.dims), 0},
                   BiasOperand(out.dtype, out.dims)};
    WEIR_ASSIGN_OR_RETURN(add_bias, ElementwiseLoop::Make(device, bias));
  }
  PlannedRun planned;
  planned.scratch_bytes = padded_bytes + widen_in.bytes + widen_weights.bytes +
                          sums_bytes + convolution->scratch_bytes();
  planned.run = [=](const RunArgs& run) -> absl::Status {
    const void* source = run.inputs[0];
    const void* filter = run.inputs[1];
    void* sums = run.outputs[0];
    std::byte* scratch = static_cast<std::byte*>(run.scratch);
    const auto take = [&scratch](size_t bytes) {
      std::byte* taken = scratch;
      scratch += bytes;
      return taken;
    };
    if (padding != nullptr) {
      std::byte* target = take(padded_bytes);
      WEIR_RETURN_IF_ERROR(RunPadding(*padding, run, target));
      source = target;
    }
    if (widens) {
      std::byte* wide_in = take(widen_in.bytes);
      WEIR_RETURN_IF_ERROR(widen_in.loop->Run(run.stream, {&source, 1}, wide_in,
                                              run.node_index));
      source = wide_in;
      std::byte* wide_weights = take(widen_weights.bytes);
      WEIR_RETURN_IF_ERROR(widen_weights.loop->Run(
          run.stream, {&filter, 1}, wide_weights, run.node_index));
      filter = wide_weights;
      sums = take(sums_bytes);
    }
    WEIR_RETURN_IF_ERROR(
        convolution->Run(run.stream, source, filter, sums, scratch));
    if (add_bias == nullptr) return absl::OkStatus();
    const void* inputs[] = {sums, run.inputs[2]};
    return add_bias->Run(run.stream, inputs, run.outputs[0], run.node_index);
  };
  return planned;
}

}  // namespace

absl::Status RegisterConvolution(OpRegistry& registry) {
  return RegisterNode(
      registry, "", "Conv",
      [](const NodeInfo& node,
         CudaDevice* device) -> absl::StatusOr<NodePlanner> {
        WEIR_RETURN_IF_ERROR(CudnnType(node.input_types[0]).status());
        WEIR_ASSIGN_OR_RETURN(Cudnn * cudnn, device->cudnn());
        return NodePlanner([node, device, cudnn](const PlanArgs& args) {
          return PlanConvolution(node, device, cudnn, args);
        });
      });
}

}  // namespace weir::cuda
