// The kernel of operators whose output has the bytes of their input (see
// OpDef::aliases_input), for where the planner does not drop the step.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops/op.h"

namespace weir {

// A KernelFactory.
absl::StatusOr<std::unique_ptr<const Kernel>> MakeCopyKernel(
    const NodeInfo& node, Device& device);

}  // namespace weir
