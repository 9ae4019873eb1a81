// MaxPool and AveragePool over up to three spatial axes.
#include "kernels/ops/pooling.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir::cuda {
namespace {

std::string_view Lowest(DType dtype) {
  if (IsFloating(dtype)) return "(-__int_as_float(0x7f800000))";
  return dtype == DType::kUint8 ? "0" : "-128";
}

absl::StatusOr<PlannedRun> PlanPool(const NodeInfo& node, CudaDevice* device,
                                    bool max, const PlanArgs& args) {
  const TensorMeta& in = args.inputs[0];
  const TensorMeta& out = args.outputs[0];
  WEIR_ASSIGN_OR_RETURN(const Pooling pooling, PoolingOf(node, in.dims));
  const SpatialAxes axes = SpatialAxesOf(pooling.window, in.dims, out.dims);
  std::string accumulator = in.dtype == DType::kDouble ? "double"
                            : IsFloating(in.dtype)
                                ? "float"
                                : std::string(StorageType(in.dtype));
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel pool,
      GeneratedKernel::Make(
          device,
          absl::StrCat(std::string(PreludeSource()),
                       Define("S", StorageType(in.dtype)),
                       Define("A", accumulator), Define("MAX", max ? "1" : "0"),
                       Define("LOWEST", Lowest(in.dtype)),
                       std::string(PoolingSource()))));
  const uint64_t elements = static_cast<uint64_t>(out.elements);
  const uint64_t include_pad = pooling.include_pad;
  const uint64_t column_major = pooling.column_major;
  return PlannedRun{
      [=](const RunArgs& run) {
        if (elements == 0) return absl::OkStatus();
        Words words;
        words.Add(run.inputs[0]).Add(run.outputs[0]).Add(OutputOrNull(run, 1));
        words.Add(elements);
        AddSpatialAxes(axes, &words);
        for (const SpatialAxis& axis : axes) words.Add(axis.window.pad_end);
        words.Add(include_pad).Add(column_major);
        return pool.Launch(run.stream, GridFor(elements), words);
      },
      {pool.hold()}};
}

CompileFunction Pool(bool max) {
  return [max](const NodeInfo& node,
               CudaDevice* device) -> absl::StatusOr<PlanFunction> {
    return PlanFunction([node, device, max](const PlanArgs& args) {
      return PlanPool(node, device, max, args);
    });
  };
}

}  // namespace

absl::Status RegisterPooling(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "", "MaxPool", Pool(true)));
  return RegisterNode(registry, "", "AveragePool", Pool(false));
}

}  // namespace weir::cuda
