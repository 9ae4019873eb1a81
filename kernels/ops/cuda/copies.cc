// Operators whose output is bytes of an input, or bytes known when the plan is
// made.
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/constant.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/identity.h"

namespace weir::cuda {
namespace {

absl::StatusOr<PlanFunction> CompileCopy(const NodeInfo& node, CudaDevice*) {
  WEIR_RETURN_IF_ERROR(RefuseStrings(node));
  return PlanFunction([](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const size_t bytes = args.outputs[0].bytes;
    return PlannedRun{[bytes](const RunArgs& run) {
      return run.stream.CopyOnDevice(run.outputs[0], run.inputs[0], bytes);
    }};
  });
}

// Copies bytes that lie on the device already.
PlannedRun CopyOf(std::shared_ptr<const void> data, size_t bytes) {
  return {[data = std::move(data), bytes](const RunArgs& run) {
    return run.stream.CopyOnDevice(run.outputs[0], data.get(), bytes);
  }};
}

absl::StatusOr<PlanFunction> CompileConstant(const NodeInfo& node,
                                             CudaDevice* device) {
  WEIR_ASSIGN_OR_RETURN(Constant value, ConstantValue(node));
  if (value.tensor.dtype == DType::kString) {
    return absl::UnimplementedError("strings on a CUDA device");
  }
  return PlanFunction([value = std::move(value), device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const size_t bytes = args.outputs[0].bytes;
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const void> data,
                          device->Upload(value.tensor.data, bytes));
    return CopyOf(std::move(data), bytes);
  });
}

absl::StatusOr<PlanFunction> CompileShape(const NodeInfo& node,
                                          CudaDevice* device) {
  return PlanFunction([node, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const Dims& dims = args.inputs[0].dims;
    const ShapeWindow window = ShapeWindowOf(node, dims.size());
    const size_t bytes = args.outputs[0].bytes;
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const void> data,
                          device->Upload(dims.data() + window.begin, bytes));
    return CopyOf(std::move(data), bytes);
  });
}

absl::StatusOr<PlanFunction> CompileFill(const NodeInfo& node,
                                         CudaDevice* device) {
  WEIR_ASSIGN_OR_RETURN(const Fill fill, FillOf(node));
  return PlanFunction([pattern = fill.pattern, device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const TensorMeta& out = args.outputs[0];
    const size_t bytes = out.bytes;
    if (pattern == 0) {
      return PlannedRun{[bytes](const RunArgs& run) {
        return run.stream.Fill(run.outputs[0], 0, bytes);
      }};
    }
    ElementwiseSpec spec;
    spec.expression = "WORD(0)";
    spec.words.Add(pattern);
    spec.moves = true;
    spec.output = out.dtype;
    spec.dims = out.dims;
    WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> loop,
                          ElementwiseLoop::Make(device, spec));
    return PlannedRun{[loop](const RunArgs& run) {
                        return loop->Run(run.stream, {}, run.outputs[0],
                                         run.node_index);
                      },
                      {loop->hold()}};
  });
}

}  // namespace

absl::Status RegisterCopies(OpRegistry& registry) {
  for (const char* name :
       {"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"}) {
    WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", name, CompileCopy));
  }
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Constant", CompileConstant));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "Shape", CompileShape));
  return RegisterNode(registry, "", "ConstantOfShape", CompileFill);
}

}  // namespace weir::cuda
