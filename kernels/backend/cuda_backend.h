// The one function that libweir_cuda.so exports. Both libraries come from one
// build (the build id says so), so C++ objects may cross; errors cross as plain
// bytes. Each call makes a device of its own, and adds the kernels to the given
// registry if they are not there. Callable in any thread; what the calls do to
// one registry is the caller's to order.
#pragma once

#include "kernels/device/device.h"
#include "kernels/device/device_options.h"
#include "kernels/ops/registry.h"

namespace weir {

inline constexpr char kCudaBackendLibrary[] = "libweir_cuda.so";
inline constexpr char kCudaOpenSymbol[] = "weir_cuda_open";

struct CudaBackendRequest {
  int ordinal = 0;
  const DeviceOptions* options = nullptr;
  OpRegistry* ops = nullptr;  // the backend adds its kernels
};

struct CudaBackendReply {
  Device* device = nullptr;  // ownership passes to the caller
  int error_code = 0;        // absl::StatusCode; 0 if there is a device
  char reason[64] = {};      // of error_info.h, for example NO_CUDA_DEVICE
  char message[512] = {};
};

// Returns reply->error_code.
using CudaOpenFunction = int(const char* build_id,
                             const CudaBackendRequest* request,
                             CudaBackendReply* reply);

}  // namespace weir
