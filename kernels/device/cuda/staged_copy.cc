#include "kernels/device/cuda/staged_copy.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/device.h"

namespace weir::cuda {

StagedCopies::Staging::~Staging() {
  if (data == nullptr) return;
  ExpectMayWait("cudaFreeHost");
  (void)cudaFreeHost(data);
}

absl::Status StagedCopies::CopyFilled(
    Stream& stream, size_t bytes, void* target,
    const std::function<absl::Status(std::span<uint8_t>)>& fill,
    Stream::GoOn go_on) {
  auto item = staging_.Take(
      [bytes](const Staging& staging) { return staging.size >= bytes; },
      [bytes](Staging* staging) -> absl::Status {
        void* data = nullptr;
        ExpectMayWait("cudaHostAlloc");
        WEIR_RETURN_IF_ERROR(ShortOfHostMemory(WEIR_CUDA_CALL(
            cudaHostAlloc(&data, bytes, cudaHostAllocPortable))));
        staging->data = static_cast<uint8_t*>(data);
        staging->size = bytes;
        return absl::OkStatus();
      },
      [&](Stream::Look look) { return stream.Await(look, go_on); }, bytes);
  WEIR_RETURN_IF_ERROR(item.status());
  absl::Status status = fill({(*item)->value.data, bytes});
  if (status.ok()) {
    status = stream.CopyToDevice(target, (*item)->value.data, bytes);
  }
  const absl::Status returned = staging_.Return(
      *std::move(item), static_cast<cudaStream_t>(stream.native_handle()));
  return status.ok() ? returned : status;
}

}  // namespace weir::cuda
