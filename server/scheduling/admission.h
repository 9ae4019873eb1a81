// Admits requests or refuses them at once: deadline still reachable, requests
// and bytes in flight within their bounds, server not stopping. Two shared
// atomics, no lock. Thread-safe; outlives its tickets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"

namespace weir {

class Admission {
 public:
  // Held by a request from its admission until it is answered. Move-only.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept
        : admission_(std::exchange(other.admission_, nullptr)),
          bytes_(other.bytes_) {}
    Ticket& operator=(Ticket&& other) noexcept {
      std::swap(admission_, other.admission_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Ticket() { Reset(); }
    void Reset();

   private:
    friend class Admission;
    Ticket(Admission* admission, int64_t bytes)
        : admission_(admission), bytes_(bytes) {}
    Admission* admission_ = nullptr;
    int64_t bytes_ = 0;
  };

  // `max_requests` counts those that run and those that wait.
  Admission(size_t max_requests, size_t max_bytes)
      : max_requests_(static_cast<int64_t>(max_requests)),
        max_bytes_(static_cast<int64_t>(max_bytes)) {}

  // DEADLINE_EXCEEDED if `deadline` has passed; RESOURCE_EXHAUSTED with reason
  // QUEUE_FULL or QUEUE_BYTES_FULL and a retry hint.
  absl::StatusOr<Ticket> Admit(size_t bytes, Nanos deadline, Nanos now);

  int64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  int64_t max_requests() const { return max_requests_; }
  int64_t max_bytes() const { return max_bytes_; }

 private:
  absl::Status Refuse(const char* what, const char* flag, const char* reason,
                      int64_t limit);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  alignas(64) std::atomic<int64_t> requests_{0};
  alignas(64) std::atomic<int64_t> bytes_{0};
  std::atomic<uint64_t> refused_{0};
};

}  // namespace weir
