#include "kernels/device/cuda/host_scratch.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir::cuda {

absl::StatusOr<HostScratch::Lease> HostScratch::Take(size_t bytes,
                                                     WaitFor wait_for) {
  if (bytes > max_bytes_) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "decoding on the host takes ", bytes,
                          " bytes; what runs there beside a GPU may take ",
                          max_bytes_, " (", max_bytes_name_, ")")),
                      "DEVICE_MEMORY_EXHAUSTED",
                      {{"bytes", absl::StrCat(bytes)},
                       {"budget_bytes", absl::StrCat(max_bytes_)}});
  }
  uint64_t turn = 0;
  {
    MutexLock lock(&mu_);
    turn = turns_.Arrive();
  }
  const absl::Status waited = wait_for([&]() -> absl::StatusOr<Awaited> {
    MutexLock lock(&mu_);
    if (!turns_.IsNext(turn) || users_ >= max_users_ ||
        bytes_ + bytes > max_bytes_) {
      return Awaited::kHost;
    }
    ++users_;
    bytes_ += bytes;
    return Awaited::kNothing;
  });
  {
    MutexLock lock(&mu_);
    turns_.Leave(turn);
  }
  WEIR_RETURN_IF_ERROR(waited);
  return Lease(this, bytes);
}

void HostScratch::GiveBack(size_t bytes) {
  MutexLock lock(&mu_);
  --users_;
  bytes_ -= bytes;
}

size_t HostScratch::used_bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

size_t HostScratch::waiting() const {
  MutexLock lock(&mu_);
  return turns_.waiting();
}

}  // namespace weir::cuda
