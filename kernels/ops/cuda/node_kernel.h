// How an operator's CUDA kernel is written: a function from node and device to
// a plan function, which turns shapes into what one run enqueues. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"

namespace weir::cuda {

struct PlannedRun {
  RunFunction run;
  size_t scratch_bytes = 0;
  size_t held_bytes = 0;
  size_t launches = 1;
  bool computes_on_host = false;
};

using NodePlanner = std::function<absl::StatusOr<PlannedRun>(const PlanArgs&)>;
using NodeCompiler = std::function<absl::StatusOr<NodePlanner>(
    const NodeInfo& node, CudaDevice* device)>;

// NOT_FOUND for an operator that nothing defines: a misspelt name.
absl::Status RegisterNode(OpRegistry& registry, std::string_view domain,
                          std::string_view name, NodeCompiler compiler,
                          KernelTraits traits = {});

// Product of dims[begin, end).
int64_t Product(absl::Span<const int64_t> dims, size_t begin, size_t end);

inline bool IsMissing(const PlanArgs& args, size_t i) {
  return i >= args.inputs.size() || args.inputs[i].dtype == DType::kInvalid;
}
inline const void* InputOrNull(const RunArgs& run, size_t i) {
  return i < run.inputs.size() ? run.inputs[i] : nullptr;
}
inline void* OutputOrNull(const RunArgs& run, size_t i) {
  return i < run.outputs.size() ? run.outputs[i] : nullptr;
}

// One Register function per file of this folder.
absl::Status RegisterCopies(OpRegistry& registry);
absl::Status RegisterMovement(OpRegistry& registry);
absl::Status RegisterReductions(OpRegistry& registry);
absl::Status RegisterNormalization(OpRegistry& registry);
absl::Status RegisterPooling(OpRegistry& registry);
absl::Status RegisterMatMul(OpRegistry& registry);
absl::Status RegisterConvolution(OpRegistry& registry);
absl::Status RegisterPicture(OpRegistry& registry);
absl::Status RegisterDecodeImage(OpRegistry& registry);
absl::Status RegisterRandom(OpRegistry& registry);
absl::Status RegisterTesting(OpRegistry& registry);

}  // namespace weir::cuda
