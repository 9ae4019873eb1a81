// The one function that libweir_cuda.so exports.
#include "kernels/backend/cuda_backend.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "kernels/base/build_info.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/cuda/register.h"

namespace weir {
namespace {

void CopyText(std::string_view text, char* out, size_t size) {
  const size_t n = text.size() < size - 1 ? text.size() : size - 1;
  std::memcpy(out, text.data(), n);
  out[n] = '\0';
}

absl::StatusOr<std::unique_ptr<CudaDevice>> Open(
    std::string_view build_id, const CudaBackendRequest& request) {
  if (build_id != kBuildId) {
    return absl::FailedPreconditionError(absl::StrCat(
        "libweir_cuda.so is of build ", kBuildId, ", libweir.so of build ",
        absl::string_view(build_id.data(), build_id.size())));
  }
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device,
                        CudaDevice::Create(request.ordinal, *request.options));
  WEIR_RETURN_IF_ERROR(
      request.ops->RegisterKernelsOnce(DeviceKind::kCuda, RegisterCudaKernels));
  return device;
}

}  // namespace
}  // namespace weir

extern "C" __attribute__((visibility("default"))) int weir_cuda_open(
    const char* build_id, const weir::CudaBackendRequest* request,
    weir::CudaBackendReply* reply) {
  auto device = weir::Open(build_id, *request);
  if (device.ok()) {
    reply->device = device->release();
    reply->error_code = 0;
    return 0;
  }
  const absl::Status& status = device.status();
  reply->error_code = static_cast<int>(status.code());
  weir::CopyText(weir::Reason(status), reply->reason, sizeof(reply->reason));
  const absl::string_view message = status.message();
  weir::CopyText({message.data(), message.size()}, reply->message,
                 sizeof(reply->message));
  return reply->error_code;
}
