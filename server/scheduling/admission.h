// Admits requests or refuses them at once: deadline still reachable, requests
// and bytes in flight within their bounds. A request's bytes count from its
// message to its reply, until that is sent: the message, what parsing makes of
// it, what is copied for the reply; and the reply itself, which is never
// refused and may go beyond the bound. It also knows which requests wait (are
// admitted and not yet launched), and since when. Shared atomics; a lock only
// for a thread's first request, and for whoever asks what waits. Thread-safe;
// outlives its tickets.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/per_thread.h"

namespace weir {

class Admission {
  struct Queue;

 public:
  // Who has to find room. Small calls (what tells about the server, and what
  // operates it) are answered at once and while the queue is full too: they
  // take no place in it, and have room for their bytes beyond the bound, which
  // is theirs whatever requests of the other kind hold. Their own replies that
  // are not sent yet take of it. Streams, and what comes in them, take no place
  // in the queue, and their bytes are as those of requests.
  enum class Kind : uint8_t { kQueued, kSmall, kStream };
  static constexpr int64_t kSmallCallRoom = int64_t{64} << 20;

  // Held by a request from its admission until its reply is sent. Move-only;
  // used and dropped on the thread that admitted it, but for a stream's, which
  // may pass from one to another; meanwhile another may Charge, if that one
  // does not.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept { *this = std::move(other); }
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Reset(); }

    // More memory on behalf of the request. RESOURCE_EXHAUSTED as Admit, but
    // without a retry hint if the request could not even have it alone: then it
    // may grow by its message's size again. A ticket of nobody admits
    // everything.
    absl::Status Charge(size_t bytes);
    // Of what was charged, so much is gone.
    void Refund(size_t bytes);
    // The request waits no more. Idempotent.
    void Launched();
    // Its place in the queue is free, and what it holds is `bytes` from now
    // on: its reply. Once.
    void Answered(size_t bytes);
    void Reset();

    // Whether it is one: somebody admitted it.
    bool held() const { return admission_ != nullptr; }
    int64_t bytes() const { return bytes_; }

   private:
    friend class Admission;
    Admission* admission_ = nullptr;
    int64_t bytes_ = 0;
    int64_t message_ = 0;
    Kind kind_ = Kind::kQueued;
    bool queued_ = false;  // has a place among the requests
    // While it waits: its place among those of its thread, oldest first.
    Queue* queue_ = nullptr;
    Nanos since_ = 0;
    Ticket* before_ = nullptr;
    Ticket* after_ = nullptr;
  };

  // `max_requests` counts those that run and those that wait.
  Admission(size_t max_requests, size_t max_bytes)
      : max_requests_(static_cast<int64_t>(max_requests)),
        max_bytes_(static_cast<int64_t>(max_bytes)) {}

  // Whether a request of which only the headers are known would be admitted
  // now: errors as Admit. Takes nothing.
  absl::Status Expect(Kind kind, Nanos deadline, Nanos now);

  // DEADLINE_EXCEEDED if `deadline` has passed; RESOURCE_EXHAUSTED with reason
  // QUEUE_FULL or QUEUE_BYTES_FULL and a retry hint. `now` is the time the
  // request is received and never goes back on one thread.
  absl::StatusOr<Ticket> Admit(size_t bytes, Nanos deadline, Nanos now,
                               Kind kind = Kind::kQueued);

  int64_t requests() const { return requests_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
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

  int64_t ByteLimit(Kind kind) const {
    return kind == Kind::kSmall ? max_bytes_ + kSmallCallRoom : max_bytes_;
  }
  // What is held of all kinds and of this one.
  struct Held {
    int64_t bytes = 0;
    int64_t of_kind = 0;
  };
  Held Add(Kind kind, int64_t bytes);
  bool Fits(Kind kind, Held held) const {
    return held.bytes <= ByteLimit(kind) ||
           (kind == Kind::kSmall && held.of_kind <= kSmallCallRoom);
  }
  absl::Status TooLate();
  absl::Status QueueFull();
  absl::Status QueueBytesFull();
  void Enqueue(Ticket* ticket, Nanos now);

  const int64_t max_requests_;
  const int64_t max_bytes_;
  alignas(64) std::atomic<int64_t> requests_{0};
  alignas(64) std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> small_bytes_{0};  // of them, of small calls
  PerThread<Queue> queues_;
};

}  // namespace weir
