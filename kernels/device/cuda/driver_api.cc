#include "kernels/device/cuda/driver_api.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"

namespace weir {
namespace {

template <typename F>
absl::Status Find(const char* name, unsigned version, F* function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult result;
  WEIR_CUDA_RETURN_IF_ERROR(cudaGetDriverEntryPointByVersion(
      name, &address, version, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || address == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA driver has no ", name));
  }
  *function = reinterpret_cast<F>(address);
  return absl::OkStatus();
}

}  // namespace

absl::Status DriverApi::Load() {
  WEIR_RETURN_IF_ERROR(
      Find("cuStreamWriteValue64", 11070, &stream_write_value64));
  WEIR_RETURN_IF_ERROR(
      Find("cuStreamWaitValue64", 11070, &stream_wait_value64));
  WEIR_RETURN_IF_ERROR(Find("cuDeviceGet", 2000, &device_get));
  WEIR_RETURN_IF_ERROR(
      Find("cuDeviceGetAttribute", 2000, &device_get_attribute));
  WEIR_RETURN_IF_ERROR(Find("cuStreamQuery", 2000, &stream_query));
  WEIR_RETURN_IF_ERROR(Find("cuModuleLoadData", 2000, &module_load_data));
  WEIR_RETURN_IF_ERROR(Find("cuModuleUnload", 2000, &module_unload));
  WEIR_RETURN_IF_ERROR(Find("cuModuleGetFunction", 2000, &module_get_function));
  return Find("cuLaunchKernel", 4000, &launch_kernel);
}

}  // namespace weir
