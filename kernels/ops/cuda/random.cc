#include "kernels/ops/random.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir::cuda {
namespace {

absl::StatusOr<PlanFunction> CompileRandomUniform(const NodeInfo& node,
                                                  CudaDevice* device) {
  WEIR_ASSIGN_OR_RETURN(const UniformDraws draws, UniformDrawsOf(node));
  return PlanFunction([=](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    const TensorMeta& out = args.outputs[0];
    const uint64_t elements = static_cast<uint64_t>(out.elements);
    const uint64_t rows =
        out.dims.empty() ? 1 : static_cast<uint64_t>(out.dims[0]);
    WEIR_ASSIGN_OR_RETURN(
        GeneratedKernel kernel,
        GeneratedKernel::Make(device,
                              absl::StrCat(std::string(PreludeSource()),
                                           std::string(PhiloxSource()),
                                           Define("S", StorageType(out.dtype)),
                                           std::string(RandomSource()))));
    return PlannedRun{
        [=](const RunArgs& run) {
          if (elements == 0) return absl::OkStatus();
          Words words;
          words.Add(run.outputs[0]).Add(elements).Add(elements / rows);
          words.Add(draws.SeedOf(run)).Add(draws.StreamOf(run));
          words.Add(run.random.first_row);
          words.Add(static_cast<double>(draws.low));
          words.Add(static_cast<double>(draws.high));
          return kernel.Launch(run.stream, GridFor(elements), words);
        },
        {kernel.hold()}};
  });
}

}  // namespace

absl::Status RegisterRandom(OpRegistry& registry) {
  return RegisterNode(registry, "weir", "RandomUniform", CompileRandomUniform);
}

}  // namespace weir::cuda
