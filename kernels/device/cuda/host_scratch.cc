#include "kernels/device/cuda/host_scratch.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir::cuda {

absl::StatusOr<HostScratch::Lease> HostScratch::Take(size_t bytes) {
  if (bytes > max_bytes_) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "decoding on the host takes ", bytes,
            " bytes; what runs there beside a GPU may take ", max_bytes_,
            " (--arena-bytes; the host beside a GPU has a quarter of it)")),
        "DEVICE_MEMORY_EXHAUSTED",
        {{"bytes", absl::StrCat(bytes)},
         {"budget_bytes", absl::StrCat(max_bytes_)}});
  }
  MutexLock lock(&mu_);
  const uint64_t turn = arrived_++;
  while (turn != served_ || users_ >= max_users_ ||
         bytes_ + bytes > max_bytes_) {
    changed_.Wait(&mu_);
  }
  ++served_;
  ++users_;
  bytes_ += bytes;
  changed_.NotifyAll();  // there may be room for the next, too
  return Lease(this, bytes);
}

void HostScratch::GiveBack(size_t bytes) {
  MutexLock lock(&mu_);
  --users_;
  bytes_ -= bytes;
  changed_.NotifyAll();
}

size_t HostScratch::used_bytes() const {
  MutexLock lock(&mu_);
  return bytes_;
}

size_t HostScratch::waiting() const {
  MutexLock lock(&mu_);
  return static_cast<size_t>(arrived_ - served_);
}

}  // namespace weir::cuda
