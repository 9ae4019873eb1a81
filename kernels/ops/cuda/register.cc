#include "kernels/ops/cuda/register.h"

#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir {

absl::Status RegisterCudaKernels(OpRegistry& registry) {
#define KERNELS(file, Name) \
  WEIR_RETURN_IF_ERROR(cuda::Register##Name(registry));
#define TEXT(file, Name)
#include "kernels/ops/cuda/kernels.def"
#undef TEXT
#undef KERNELS
  return absl::OkStatus();
}

}  // namespace weir
