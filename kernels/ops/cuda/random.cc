// weir.RandomUniform: the numbering of the CPU kernel (kernels/ops/random.cc).
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/philox.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir::cuda {
namespace {

absl::StatusOr<PlanFunction> CompileRandomUniform(const NodeInfo& node,
                                                  CudaDevice* device) {
  const std::vector<float> range = node.attributes.Floats("range");
  const double low = range.size() == 2 ? static_cast<double>(range[0]) : 0.0;
  const double high = range.size() == 2 ? static_cast<double>(range[1]) : 1.0;
  const bool own_seed = node.attributes.Has("seed");
  const uint64_t seed = static_cast<uint64_t>(node.attributes.Int("seed", 0));
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
    return PlannedRun{[=](const RunArgs& run) {
      if (elements == 0) return absl::OkStatus();
      Words words;
      words.Add(run.outputs[0]).Add(elements).Add(elements / rows);
      words.Add(own_seed ? seed : run.random.seed);
      words.Add(own_seed ? 0 : uint64_t{run.node_index} << kPhiloxRowBits);
      words.Add(run.random.first_row).Add(low).Add(high);
      return kernel.Launch(run.stream, GridFor(elements), words);
    }};
  });
}

}  // namespace

absl::Status RegisterRandom(OpRegistry& registry) {
  return RegisterNode(registry, "weir", "RandomUniform", CompileRandomUniform);
}

}  // namespace weir::cuda
