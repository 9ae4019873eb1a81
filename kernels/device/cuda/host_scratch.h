// The host's memory that decoders beside a GPU take, and the threads that they
// take it in. Whoever wants some waits its turn, first come, first served, for
// others to end: only on threads that may wait. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/device/cuda/turns.h"

namespace weir::cuda {

class HostScratch {
 public:
  // Gives back what it holds. Move-only.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : scratch_(std::exchange(other.scratch_, nullptr)),
          bytes_(other.bytes_) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (scratch_ != nullptr) scratch_->GiveBack(bytes_);
    }

   private:
    friend class HostScratch;
    Lease(HostScratch* scratch, size_t bytes)
        : scratch_(scratch), bytes_(bytes) {}
    HostScratch* scratch_ = nullptr;
    size_t bytes_ = 0;
  };

  // `max_users` >= 1 leases at a time, of `max_bytes` together, which errors
  // call `max_bytes_name`.
  HostScratch(size_t max_bytes, size_t max_users,
              const char* max_bytes_name = "max_bytes")
      : max_bytes_(max_bytes),
        max_users_(max_users),
        max_bytes_name_(max_bytes_name) {}

  // Waits by `wait_for`, whose error is returned. RESOURCE_EXHAUSTED, reason
  // DEVICE_MEMORY_EXHAUSTED, for more than there can ever be.
  absl::StatusOr<Lease> Take(size_t bytes, WaitFor wait_for);

  size_t max_bytes() const { return max_bytes_; }
  size_t used_bytes() const;
  size_t waiting() const;

 private:
  void GiveBack(size_t bytes);

  const size_t max_bytes_;
  const size_t max_users_;
  const char* const max_bytes_name_;
  mutable Mutex mu_;
  size_t bytes_ WEIR_GUARDED_BY(mu_) = 0;
  size_t users_ WEIR_GUARDED_BY(mu_) = 0;
  Turns turns_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::cuda
