#include "kernels/ops/cuda/node_kernel.h"

#include <utility>

#include "kernels/base/alignment.h"
#include "kernels/base/status_macros.h"

namespace weir::cuda {

absl::Status RegisterNode(OpRegistry& registry, std::string_view domain,
                          std::string_view name, CompileFunction compile,
                          KernelTraits traits) {
  return registry.RegisterKernel(
      DeviceKind::kCuda, domain, name,
      [compile = std::move(compile)](const NodeInfo& node, Device& device)
          -> absl::StatusOr<std::unique_ptr<const Kernel>> {
        WEIR_ASSIGN_OR_RETURN(CudaDevice * cuda, CudaDevice::From(device));
        WEIR_ASSIGN_OR_RETURN(PlanFunction plan, compile(node, cuda));
        return MakeKernel(std::move(plan));
      },
      traits);
}

int64_t NoScratch(const NodeInfo&, const PlanArgs&) { return 0; }

int64_t PartialResults(const NodeInfo&, const PlanArgs& args) {
  return args.inputs[0].elements / 4 +
         2 * static_cast<int64_t>(kBlockAlignment);
}

absl::Status RefuseStrings(const NodeInfo& node) {
  for (DType dtype : node.input_types) {
    if (dtype == DType::kString) {
      return absl::UnimplementedError("strings on a CUDA device");
    }
  }
  return absl::OkStatus();
}

void AddSpatialAxes(const SpatialAxes& axes, Words* words) {
  for (const SpatialAxis& axis : axes) words->Add(axis.in);
  for (const SpatialAxis& axis : axes) words->Add(axis.out);
  for (const SpatialAxis& axis : axes) words->Add(axis.window.kernel);
  for (const SpatialAxis& axis : axes) words->Add(axis.window.stride);
  for (const SpatialAxis& axis : axes) words->Add(axis.window.dilation);
  for (const SpatialAxis& axis : axes) words->Add(axis.window.pad_begin);
}

}  // namespace weir::cuda
