// Turns errors of the CUDA runtime and driver into absl::Status, and tells
// sticky errors (the process has lost its GPU) from errors of one call. Pure
// functions; any thread.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace weir {

// The reason (error_info.h) of every sticky error.
inline constexpr char kDeviceFaultReason[] = "DEVICE_FAULT";

// A sticky error fails every later call of the process, and nothing in the
// process can mend it.
bool IsSticky(cudaError_t error);
inline bool IsSticky(CUresult error) {
  return IsSticky(static_cast<cudaError_t>(error));
}

// OK; without memory RESOURCE_EXHAUSTED with the reason DEVICE_MEMORY_EXHAUSTED
// (of calls for host memory, make it ShortOfHostMemory's); UNAVAILABLE with
// reason DEVICE_FAULT and metadata {code, name} if sticky; else INTERNAL.
// `what` is the call. It has caused its own errors, but only met a sticky one,
// which belongs to work that ran before: the message begins with the error
// then.
absl::Status CudaStatus(cudaError_t error, const char* what);
absl::Status CudaStatus(CUresult error, const char* what);

// Of a call that takes hold of a device which there is, or of the driver: as
// CudaStatus, and what says that it is not to be had is a sticky error's
// status too, as no later call would have it either.
absl::Status CudaStartStatus(cudaError_t error, const char* what);

// True for a status that CudaStatus made of a sticky error.
bool IsDeviceFault(const absl::Status& status);

}  // namespace weir

#define WEIR_CUDA_CALL(call) ::weir::CudaStatus((call), #call)
#define WEIR_CUDA_RETURN_IF_ERROR(call) \
  WEIR_RETURN_IF_ERROR(WEIR_CUDA_CALL(call))
