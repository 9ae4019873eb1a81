// Who is active in a context: at most one handler at a time, who may enter
// again and leaves as often as it entered. Another one is refused, or waits in
// a bounded queue, first come, first served, until its deadline.
//
// Thread-safe, whatever threads a handler is on. No callback runs under a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"

namespace weir {

// Identifies a request handler: unique in the process, never 0.
using HandlerId = uint64_t;
WEIR_EXPORT HandlerId NewHandlerId();

class WEIR_EXPORT Occupancy : public std::enable_shared_from_this<Occupancy> {
 public:
  // OK: the handler is inside.
  using Entered = absl::AnyInvocable<void(absl::Status)>;
  using EntryId = uint64_t;  // 0 is never one

  // Of the context that errors name. `timers` outlives what is queued.
  static std::shared_ptr<Occupancy> Create(uint64_t context,
                                           TimerQueue* timers);

  // ABORTED, reason CONTEXT_BUSY, with the owner, while another one is inside.
  absl::Status Enter(HandlerId handler);

  // As Enter if nobody else is inside; else `done` runs later, on the thread
  // that leaves, with OK, or with DEADLINE_EXCEEDED on the timers' thread; with
  // RESOURCE_EXHAUSTED, reason CONTEXT_QUEUE_FULL, at once if too many wait.
  // Exactly once, unless the entry is cancelled. Returns 0 if it has run.
  EntryId EnterQueued(HandlerId handler, Nanos deadline, Entered done);

  // True if `done` will not run; false if it has run or is about to.
  bool CancelEntry(EntryId entry);

  // The handler that is inside leaves once; the last time the next one enters.
  void Leave();

  HandlerId owner() const { return owner_.load(std::memory_order_acquire); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  struct Entrant {
    EntryId id = 0;
    HandlerId handler = 0;
    Entered done;
    TimerQueue::TimerId timer = 0;
  };

  Occupancy(uint64_t context, TimerQueue* timers);

  // False if somebody is inside: then `handler` is the owner.
  bool TryEnter(HandlerId& handler);
  bool TryEnterAgain(HandlerId handler) WEIR_REQUIRES(mu_);
  absl::Status Busy(HandlerId owner);
  absl::Status QueueFull();
  // Takes the entrant out of the queue; one without id if it is not there.
  Entrant Take(EntryId entry);

  const uint64_t context_;
  TimerQueue* const timers_;
  // Taken by whoever finds it 0, given away and given up under the lock.
  Atomic<HandlerId> owner_{0};
  Atomic<uint64_t> refused_{0};

  Mutex mu_;
  EntryId last_entry_ WEIR_GUARDED_BY(mu_) = 0;
  std::deque<Entrant> queue_ WEIR_GUARDED_BY(mu_);
  uint64_t again_ WEIR_GUARDED_BY(mu_) = 0;  // entries of the owner but one
};

}  // namespace weir
