// Conv and weir.FusedConv. One filter per channel ("depthwise") by a kernel of
// ours, which reads each element of memory once or twice where a matrix product
// would compute mostly nothing; everything else by cuDNN, with bias and
// residual inside, so that a sum is rounded once. Half types may have channels
// last.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cudnn.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/fused_conv.h"
#include "kernels/ops/spatial_window.h"

namespace weir::cuda {
namespace {

constexpr size_t kBias = 2;

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

bool IsHalf(const NodeInfo& node) {
  return node.input_types[0] == DType::kFloat16 ||
         node.input_types[0] == DType::kBfloat16;
}

// The activation of a fused node over `x`, in kernel text, between bounds of
// type double that are given as text; empty without one.
std::string Activation(const NodeInfo& node, absl::string_view x,
                       absl::string_view low, absl::string_view high) {
  switch (FusedActivationOf(node).kind) {
    case FusedActivation::Kind::kNone:
      return "";
    case FusedActivation::Kind::kRelu:
      return absl::StrCat("Relu(", x, ")");
    case FusedActivation::Kind::kClip:
      return absl::StrCat("Clip(", x, ", T(", low, "), T(", high, "))");
  }
  return "";
}

struct Bounds {
  explicit Bounds(const NodeInfo& node) {
    const FusedActivation activation = FusedActivationOf(node);
    low = static_cast<double>(activation.low);
    high = static_cast<double>(activation.high);
  }
  double low, high;
};

// The same for a loop over `x`: the bounds are its words. False without one.
bool Activate(const NodeInfo& node, absl::string_view x,
              ElementwiseSpec* spec) {
  const std::string activated = Activation(node, x, "NUMBER(0)", "NUMBER(1)");
  if (activated.empty()) return false;
  const Bounds bounds(node);
  spec->expression = activated;
  spec->words.Add(bounds.low).Add(bounds.high);
  return true;
}

// A convolution with its shapes.
struct Task {
  const TensorMeta& in;
  const TensorMeta& weights;
  const TensorMeta& out;
  bool bias, residual;
  bool channels_last;
  SpatialWindow window;

  size_t rank() const { return window.axes.size(); }
};

// What is left to do with sums in the output: a bias, a residual and the node's
// activation, in one loop over it.
struct Finish {
  std::shared_ptr<const ElementwiseLoop> loop;  // null: nothing
  std::vector<size_t> inputs;  // that it reads, after the sums if there are any
  bool sums = false;

  std::vector<SharedHold> holds() const {
    if (loop == nullptr) return {};
    return {loop->hold()};
  }

  absl::Status Run(const RunArgs& run) const {
    if (loop == nullptr) return absl::OkStatus();
    absl::InlinedVector<const void*, 3> operands;
    if (sums) operands.push_back(run.outputs[0]);
    for (const size_t i : inputs) operands.push_back(run.inputs[i]);
    return loop->Run(run.stream, operands, run.outputs[0], run.node_index);
  }
};

// Without sums, and nothing to add, the output is 0.
absl::StatusOr<Finish> MakeFinish(const NodeInfo& node, CudaDevice* device,
                                  const Task& task, bool sums, bool bias,
                                  bool residual) {
  Finish finish;
  finish.sums = sums;
  // In the order of memory.
  Dims dims = task.out.dims;
  size_t channel_axis = 1;
  if (task.channels_last) {
    std::rotate(dims.begin() + 1, dims.begin() + 2, dims.end());
    channel_axis = dims.size() - 1;
  }
  ElementwiseSpec spec;
  spec.output = task.out.dtype;
  spec.dims = dims;
  std::string value;
  const auto add = [&](Dims strides) {
    const std::string x = absl::StrCat("x", spec.inputs.size());
    value = value.empty() ? x : absl::StrCat("Add(", value, ", ", x, ")");
    spec.inputs.push_back({task.out.dtype, std::move(strides), 0});
  };
  if (sums) add(DenseStrides(dims));
  if (bias) {
    Dims strides(dims.size(), 0);
    if (dims[channel_axis] != 1) strides[channel_axis] = 1;
    add(std::move(strides));
    finish.inputs.push_back(kBias);
  }
  if (residual) {
    add(DenseStrides(dims));
    finish.inputs.push_back(kFusedConvResidual);
  }
  if (value.empty()) value = "T(0)";
  if (!Activate(node, value, &spec)) {
    if (sums && finish.inputs.empty()) return finish;
    spec.expression = value;
    spec.moves = value == "x0";
  }
  WEIR_ASSIGN_OR_RETURN(finish.loop, ElementwiseLoop::Make(device, spec));
  return finish;
}

// Sums of nothing: what is added to them alone, or 0.
absl::StatusOr<PlannedRun> PlanWithoutSums(const NodeInfo& node,
                                           CudaDevice* device,
                                           const Task& task) {
  WEIR_ASSIGN_OR_RETURN(
      const Finish finish,
      MakeFinish(node, device, task, /*sums=*/false, task.bias, task.residual));
  return PlannedRun{[finish](const RunArgs& run) { return finish.Run(run); },
                    finish.holds()};
}

bool IsDepthwise(const Task& task) { return task.weights.dims[1] == 1; }

absl::StatusOr<PlannedRun> PlanDepthwise(const NodeInfo& node,
                                         CudaDevice* device, const Task& task) {
  const SpatialAxes axes =
      SpatialAxesOf(task.window, task.in.dims, task.out.dims);
  const bool narrow = std::max(task.in.elements, task.out.elements) <
                      std::numeric_limits<int32_t>::max();
  const std::string activated = Activation(node, "x", "a.low", "a.high");
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel convolve,
      GeneratedKernel::Make(
          device,
          absl::StrCat(
              std::string(PreludeSource()),
              std::string(ScalarFunctionsSource()),
              Define("S", StorageType(task.in.dtype)),
              Define("INDEX", narrow ? "uint32_t" : "uint64_t"),
              Define("CHANNELS_LAST", task.channels_last ? "1" : "0"),
              Define("ACTIVATE(x)", activated.empty() ? "x" : activated),
              std::string(DepthwiseSource()))));
  const int64_t channels = task.in.dims[1];
  const int64_t filters = task.out.dims[1];
  const uint64_t elements = static_cast<uint64_t>(task.out.elements);
  const bool residual = task.residual;
  const Bounds bounds(node);
  return PlannedRun{
      [=](const RunArgs& run) {
        Words words;
        words.Add(run.inputs[0])
            .Add(run.inputs[1])
            .Add(InputOrNull(run, kBias));
        words.Add(residual ? run.inputs[kFusedConvResidual] : nullptr);
        words.Add(run.outputs[0]).Add(elements).Add(channels).Add(filters);
        AddSpatialAxes(axes, &words);
        words.Add(bounds.low).Add(bounds.high);
        return convolve.Launch(run.stream, GridFor(elements), words);
      },
      {convolve.hold()}};
}

// What cuDNN takes, and adds up, in int.
absl::Status CheckInt(int64_t value, absl::string_view what) {
  if (value <= std::numeric_limits<int>::max()) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(what, " of ", value, "; cuDNN takes 2^31 - 1"));
}

// cuDNN wants two spatial axes: a single one is a row.
std::vector<int64_t> Shape(const Dims& dims) {
  std::vector<int64_t> shape = {dims[0], dims[1]};
  if (dims.size() == 3) shape.push_back(1);
  for (size_t d = 2; d < dims.size(); ++d) shape.push_back(dims[d]);
  return shape;
}

absl::StatusOr<PlannedRun> PlanCudnn(const NodeInfo& node, CudaDevice* device,
                                     const Task& task) {
  ConvolutionSpec spec;
  WEIR_ASSIGN_OR_RETURN(spec.type, CudnnType(task.in.dtype));
  spec.in = Shape(task.in.dims);
  spec.weights = Shape(task.weights.dims);
  spec.out = Shape(task.out.dims);
  const size_t axes = spec.in.size() - 2;
  spec.pad_begin.assign(axes, 0);
  spec.pad_end.assign(axes, 0);
  spec.stride.assign(axes, 1);
  spec.dilation.assign(axes, 1);
  for (size_t d = 0; d < task.rank(); ++d) {
    const size_t to = d + axes - task.rank();
    const WindowAxis& axis = task.window.axes[d];
    WEIR_RETURN_IF_ERROR(CheckInt(axis.reach(), "a window"));
    WEIR_RETURN_IF_ERROR(CheckInt(axis.stride, "a stride"));
    WEIR_RETURN_IF_ERROR(CheckInt(
        task.in.dims[d + 2] + axis.pad_begin + axis.pad_end, "a padded side"));
    spec.pad_begin[to] = axis.pad_begin;
    spec.pad_end[to] = axis.pad_end;
    spec.stride[to] = axis.stride;
    spec.dilation[to] = axis.dilation;
  }
  spec.channels_last = task.channels_last;
  spec.residual = task.residual;
  // cuDNN adds a tensor only together with a bias.
  spec.bias = task.bias || task.residual;
  WEIR_ASSIGN_OR_RETURN(Cudnn * cudnn, device->cudnn());
  auto prepared = cudnn->Prepare(spec);
  // Not every convolution has an engine that adds too.
  const bool adds = spec.bias && !absl::IsUnimplemented(prepared.status());
  if (spec.bias && !adds) {
    spec.bias = spec.residual = false;
    prepared = cudnn->Prepare(spec);
  }
  WEIR_RETURN_IF_ERROR(prepared.status());
  // Whoever drops the plan, cuDNN gives back what it has on this device.
  const Convolution* const raw = prepared->get();
  const std::shared_ptr<const Convolution> convolution(
      raw, [device, held = *std::move(prepared)](const Convolution*) mutable {
        if (!device->health().poisoned()) device->Activate().IgnoreError();
        held.reset();
      });
  WEIR_ASSIGN_OR_RETURN(Finish finish,
                        MakeFinish(node, device, task, /*sums=*/true,
                                   !adds && task.bias, !adds && task.residual));
  const size_t zeros =
      adds && !task.bias
          ? AlignUp(static_cast<size_t>(spec.out[1]) * SizeOf(task.out.dtype))
          : 0;
  PlannedRun planned;
  planned.scratch_bytes = zeros + convolution->scratch_bytes();
  planned.held_bytes = Convolution::kHeldBytes;
  planned.shared_holds = finish.holds();
  planned.launches = 4;  // cuDNN's may be two
  planned.run = [convolution, finish = std::move(finish), zeros, adds,
                 residual = task.residual](const RunArgs& run) -> absl::Status {
    ConvolutionOperands operands;
    operands.in = run.inputs[0];
    operands.weights = run.inputs[1];
    operands.out = run.outputs[0];
    auto* scratch = static_cast<std::byte*>(run.scratch);
    if (adds) {
      operands.bias = InputOrNull(run, kBias);
      if (residual) operands.residual = run.inputs[kFusedConvResidual];
    }
    if (zeros > 0) {
      WEIR_RETURN_IF_ERROR(run.stream.Fill(scratch, 0, zeros));
      operands.bias = scratch;
    }
    WEIR_RETURN_IF_ERROR(
        convolution->Run(run.stream, operands, scratch + zeros));
    return finish.Run(run);
  };
  return planned;
}

absl::StatusOr<PlannedRun> PlanConvolution(const NodeInfo& node,
                                           CudaDevice* device,
                                           const PlanArgs& args) {
  const TensorMeta& in = args.inputs[0];
  const TensorMeta& weights = args.inputs[1];
  const TensorMeta& out = args.outputs[0];
  const int rank = static_cast<int>(in.dims.size()) - 2;
  if (out.elements == 0) {
    return PlannedRun{[](const RunArgs&) { return absl::OkStatus(); }};
  }
  WEIR_ASSIGN_OR_RETURN(
      const SpatialWindow parsed,
      ParseSpatialWindow(node, rank,
                         absl::MakeConstSpan(weights.dims).subspan(2)));
  const Task task = {
      in,
      weights,
      out,
      !IsMissing(args, kBias),
      !IsMissing(args, kFusedConvResidual),
      IsChannelsLast(args),
      ResolvePads(parsed, absl::MakeConstSpan(in.dims).subspan(2))};
  WEIR_RETURN_IF_ERROR(CheckResidual(args));
  if (in.elements == 0 || weights.elements == 0) {
    return PlanWithoutSums(node, device, task);
  }
  return IsDepthwise(task) ? PlanDepthwise(node, device, task)
                           : PlanCudnn(node, device, task);
}

absl::StatusOr<PlanFunction> CompileConvolution(const NodeInfo& node,
                                                CudaDevice* device) {
  WEIR_RETURN_IF_ERROR(CudnnType(node.input_types[0]).status());
  // Opened for those that will use it: plans are made while callers wait.
  if (!device->compiles_only()) {
    WEIR_RETURN_IF_ERROR(device->cudnn().status());
  }
  return PlanFunction([node, device](const PlanArgs& args) {
    // The analyzer loses sight of a std::function that is moved.
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
    return PlanConvolution(node, device, args);
  });
}

// A bias of zeros where only a residual is added. What cuDNN takes is known
// once it is asked.
int64_t ConvScratch(const NodeInfo&, const PlanArgs& args) {
  const TensorMeta& w = args.inputs[1];
  return SaturatingAdd(
      SaturatingMul(w.dims[0], static_cast<int64_t>(SizeOf(w.dtype))),
      kBlockAlignment);
}

}  // namespace

absl::Status RegisterConvolution(OpRegistry& registry) {
  KernelTraits traits;
  traits.scratch_bytes = ConvScratch;
  traits.channels_last = IsHalf;
  traits.channels_last_weights = true;
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "Conv", CompileConvolution, traits));
  return RegisterNode(registry, kFusedConvDomain, kFusedConvName,
                      CompileConvolution, traits);
}

}  // namespace weir::cuda
