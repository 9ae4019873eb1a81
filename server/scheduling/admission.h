// Admits requests or refuses them at once: deadline still reachable, requests
// and bytes in flight within their bounds, server not stopping. It also knows
// which of them wait (are admitted and not yet launched), and since when. Two
// shared atomics, no lock. Thread-safe; outlives its tickets.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "server/observe/per_thread.h"

namespace weir {

class Admission {
  struct Queue;

 public:
  // Held by a request from its admission until it is answered. Move-only; used
  // and dropped on the thread that admitted it.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Reset(); }

    // The request waits no more. Idempotent.
    void Launched();
    void Reset();

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    int64_t bytes_ = 0;
    // While it waits: its place among those of its thread, oldest first.
    Queue* queue_ = nullptr;
    Nanos since_ = 0;
    Ticket* before_ = nullptr;
    Ticket* after_ = nullptr;
  };

  // Why requests are refused: the reasons of the errors, and the deadline.
  enum class Refusal : uint8_t { kQueueFull, kQueueBytesFull, kDeadlinePassed };
  static constexpr int kRefusals = 3;

  // `max_requests` counts those that run and those that wait.
  Admission(size_t max_requests, size_t max_bytes)
      : max_requests_(static_cast<int64_t>(max_requests)),
        max_bytes_(static_cast<int64_t>(max_bytes)) {}

  // DEADLINE_EXCEEDED if `deadline` has passed; RESOURCE_EXHAUSTED with reason
  // QUEUE_FULL or QUEUE_BYTES_FULL and a retry hint. `now` is the time the
  // request is received and never goes back on one thread.
  absl::StatusOr<Ticket> Admit(size_t bytes, Nanos deadline, Nanos now);

  int64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t refused(Refusal why) const {
    return refused_[static_cast<size_t>(why)].load(std::memory_order_relaxed);
  }
  // Requests that wait, and when the oldest of them was received; 0 if none.
  int64_t waiting() const;
  Nanos oldest_waiting() const;
  int64_t max_requests() const { return max_requests_; }
  int64_t max_bytes() const { return max_bytes_; }

 private:
  // Of one thread, which alone changes it.
  struct alignas(64) Queue {
    Ticket* oldest = nullptr;
    Ticket* newest = nullptr;
    std::atomic<int64_t> length{0};
    std::atomic<Nanos> since{0};  // of the oldest; 0 if there is none
  };

  void Count(Refusal why) {
    refused_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  }
  absl::Status Refuse(Refusal why, const char* what, const char* flag,
                      const char* reason, int64_t limit);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  alignas(64) std::atomic<int64_t> requests_{0};
  alignas(64) std::atomic<int64_t> bytes_{0};
  std::array<std::atomic<uint64_t>, kRefusals> refused_{};
  PerThread<Queue> queues_;
};

}  // namespace weir
