#include "tests/bench/gpu_bare.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/nvrtc.h"

namespace weir::bench {

absl::StatusOr<BareCuda> BareCuda::Create(const std::string& source) {
  BareCuda bare;
  // Modules are of a context, which this begins.
  WEIR_CUDA_RETURN_IF_ERROR(cudaSetDevice(0));
  WEIR_RETURN_IF_ERROR(bare.driver_.Load());
  WEIR_ASSIGN_OR_RETURN(const LibraryFile file, Nvrtc::Find());
  WEIR_ASSIGN_OR_RETURN(const Nvrtc nvrtc, Nvrtc::Open(file));
  cudaDeviceProp properties;
  WEIR_CUDA_RETURN_IF_ERROR(cudaGetDeviceProperties(&properties, 0));
  WEIR_ASSIGN_OR_RETURN(
      const std::string image,
      nvrtc.Compile(source, properties.major * 10 + properties.minor));
  CUmodule module = nullptr;
  WEIR_CUDA_RETURN_IF_ERROR(
      bare.driver_.module_load_data(&module, image.data()));
  WEIR_CUDA_RETURN_IF_ERROR(
      bare.driver_.module_get_function(&bare.function_, module, "weir_kernel"));
  return bare;
}

absl::Status BareCuda::Launch(cudaStream_t stream, unsigned blocks,
                              unsigned threads, void** params) const {
  return CudaStatus(driver_.launch_kernel(function_, blocks, 1, 1, threads, 1,
                                          1, 0, stream, params, nullptr),
                    "cuLaunchKernel");
}

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

void CheckCuda(cudaError_t error, const char* what) {
  Check(CudaStatus(error, what));
}

}  // namespace weir::bench
