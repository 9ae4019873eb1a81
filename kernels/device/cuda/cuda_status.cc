#include "kernels/device/cuda/cuda_status.h"

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

// "cudaMalloc" of "cudaMalloc(&data, bytes)".
absl::string_view CallName(const char* what) {
  absl::string_view call(what);
  call = call.substr(0, call.find('('));
  const size_t member = call.find_last_of(".>:");
  return member == absl::string_view::npos ? call : call.substr(member + 1);
}

}  // namespace

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

// The runtime's codes are the driver's for every code that both have, and its
// texts need no driver.
absl::Status CudaStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  const char* name = cudaGetErrorName(error);
  const std::string text =
      IsSticky(error) ? absl::StrCat("CUDA error ", static_cast<int>(error),
                                     " ", name, ": ", cudaGetErrorString(error),
                                     " (seen by ", CallName(what), ")")
                      : absl::StrCat(CallName(what), ": ", name, " (",
                                     static_cast<int>(error),
                                     "): ", cudaGetErrorString(error));
  if (error == cudaErrorMemoryAllocation) {
    return ShortOfDeviceMemory(absl::ResourceExhaustedError(text));
  }
  absl::Status status = IsSticky(error) ? absl::UnavailableError(text)
                                        : absl::InternalError(text);
  return WithReason(
      std::move(status), IsSticky(error) ? kDeviceFaultReason : "CUDA_ERROR",
      {{"code", absl::StrCat(static_cast<int>(error))}, {"name", name}});
}

absl::Status CudaStartStatus(cudaError_t error, const char* what) {
  absl::Status status = CudaStatus(error, what);
  switch (error) {
    case cudaErrorInitializationError:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorSystemNotReady:
      return WithReason(absl::UnavailableError(status.message()),
                        kDeviceFaultReason, Metadata(status));
    default:
      return status;
  }
}

absl::Status CudaStatus(CUresult error, const char* what) {
  return CudaStatus(static_cast<cudaError_t>(error), what);
}

bool IsDeviceFault(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable &&
         Reason(status) == kDeviceFaultReason;
}

}  // namespace weir
