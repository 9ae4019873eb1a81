// Adds the CUDA kernels of every operator to a registry that already has the
// definitions. For OpRegistry::RegisterKernelsOnce.
#pragma once

#include "absl/status/status.h"
#include "kernels/ops/registry.h"

namespace weir {

absl::Status RegisterCudaKernels(OpRegistry& registry);

}  // namespace weir
