#include "kernels/ops/cuda/node_kernel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir::cuda {
namespace {

class NodePlan final : public KernelPlan {
 public:
  explicit NodePlan(PlannedRun planned) : planned_(std::move(planned)) {}
  size_t scratch_bytes() const override { return planned_.scratch_bytes; }
  size_t held_bytes() const override { return planned_.held_bytes; }
  size_t launches() const override { return planned_.launches; }
  bool computes_on_host() const override { return planned_.computes_on_host; }
  absl::Status Run(const RunArgs& args) const override {
    return planned_.run(args);
  }

 private:
  const PlannedRun planned_;
};

class NodeKernel final : public Kernel {
 public:
  explicit NodeKernel(NodePlanner planner) : planner_(std::move(planner)) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    WEIR_ASSIGN_OR_RETURN(PlannedRun planned, planner_(args));
    return std::make_unique<const NodePlan>(std::move(planned));
  }

 private:
  const NodePlanner planner_;
};

}  // namespace

absl::Status RegisterNode(OpRegistry& registry, std::string_view domain,
                          std::string_view name, NodeCompiler compiler,
                          KernelTraits traits) {
  return registry.RegisterKernel(
      DeviceKind::kCuda, domain, name,
      [compiler = std::move(compiler)](const NodeInfo& node, Device& device)
          -> absl::StatusOr<std::unique_ptr<const Kernel>> {
        WEIR_ASSIGN_OR_RETURN(CudaDevice * cuda, CudaDevice::From(device));
        WEIR_ASSIGN_OR_RETURN(NodePlanner planner, compiler(node, cuda));
        return std::make_unique<const NodeKernel>(std::move(planner));
      },
      traits);
}

int64_t Product(absl::Span<const int64_t> dims, size_t begin, size_t end) {
  int64_t product = 1;
  for (size_t d = begin; d < end; ++d) product *= dims[d];
  return product;
}

}  // namespace weir::cuda
