// weir.Spin and weir.Fault, for tests alone.
#include "kernels/ops/testing.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir::cuda {
namespace {

enum Kind { kSpin = 0, kIllegalAddress = 1, kTrap = 2, kReport = 3 };

absl::StatusOr<PlanFunction> Compile(CudaDevice* device, Kind kind,
                                     uint64_t nanoseconds, FaultCode code) {
  return PlanFunction([=](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    WEIR_ASSIGN_OR_RETURN(
        GeneratedKernel kernel,
        GeneratedKernel::Make(
            device, absl::StrCat(std::string(PreludeSource()),
                                 Define("FAULT_KIND", absl::StrCat(kind)),
                                 std::string(TestingSource()))));
    const uint64_t bytes = args.outputs[0].bytes;
    Grid grid = GridFor(bytes);
    grid.x = std::min<uint64_t>(grid.x, 1024);
    return PlannedRun{[=](const RunArgs& run) {
                        Words words;
                        words.Add(run.inputs[0]).Add(run.outputs[0]).Add(bytes);
                        words.Add(nanoseconds).Add(run.stream.fault_slot());
                        words.Add(uint64_t{run.node_index});
                        words.Add(static_cast<uint64_t>(code));
                        return kernel.Launch(run.stream, grid, words);
                      },
                      {kernel.hold()}};
  });
}

absl::StatusOr<PlanFunction> CompileSpin(const NodeInfo& node,
                                         CudaDevice* device) {
  WEIR_ASSIGN_OR_RETURN(const Nanos duration, SpinTimeOf(node));
  return Compile(device, kSpin, static_cast<uint64_t>(duration),
                 FaultCode::kNone);
}

absl::StatusOr<PlanFunction> CompileFault(const NodeInfo& node,
                                          CudaDevice* device) {
  WEIR_ASSIGN_OR_RETURN(const FaultMode mode, FaultModeOf(node));
  const Kind kind = mode == FaultMode::kIllegalAddress ? kIllegalAddress
                    : mode == FaultMode::kTrap         ? kTrap
                                                       : kReport;
  return Compile(device, kind, 0,
                 mode == FaultMode::kIndex ? FaultCode::kIndexOutOfRange
                                           : FaultCode::kInjected);
}

}  // namespace

absl::Status RegisterTesting(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, "weir", "Spin", CompileSpin));
  return RegisterNode(registry, "weir", "Fault", CompileFault);
}

}  // namespace weir::cuda
