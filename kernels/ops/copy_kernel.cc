#include "kernels/ops/copy_kernel.h"

#include <cstring>

#include "kernels/ops/parallel_for.h"

namespace weir {
namespace {

constexpr int64_t kGrainBytes = 256 << 10;

}  // namespace

absl::StatusOr<std::unique_ptr<const Kernel>> MakeCopyKernel(const NodeInfo&,
                                                             Device&) {
  return MakeKernel([](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const int64_t bytes = static_cast<int64_t>(args.outputs[0].bytes);
    return RunFunction([bytes](const RunArgs& run) {
      const std::byte* source = static_cast<const std::byte*>(run.inputs[0]);
      std::byte* target = static_cast<std::byte*>(run.outputs[0]);
      ParallelRange(run.team, bytes, kGrainBytes,
                    [&](int64_t begin, int64_t end) {
                      std::memcpy(target + begin, source + begin,
                                  static_cast<size_t>(end - begin));
                    });
      return absl::OkStatus();
    });
  });
}

}  // namespace weir
