#include "kernels/ops/cuda/register.h"

#include "kernels/base/status_macros.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"

namespace weir {

absl::Status RegisterCudaKernels(OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(cuda::RegisterElementwise(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterCopies(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterMovement(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterReductions(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterNormalization(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterMatMul(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterConvolution(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterPooling(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterPicture(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterDecodeImage(registry));
  WEIR_RETURN_IF_ERROR(cuda::RegisterRandom(registry));
  return cuda::RegisterTesting(registry);
}

}  // namespace weir
