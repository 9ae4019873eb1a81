// What a context has accepted and not launched, in order: a line whose first
// item is driven, one stage after another, until it is launched or over. The
// queue knows no stage: it asks the item, which answers that it went on, waits
// or is blocked. A wait of the first holds back those behind it. An item that
// nobody wants any more goes at once, wherever it stands.
//
// Thread-safe. One thread at a time drives; another one leaves a note and goes.
// Under the queue's lock run only the executor's Post and what says so here.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "kernels/eval/deadline_timer.h"
#include "kernels/eval/executor.h"

namespace weir {

class WorkQueue;

// One thing to do in a context's order: a run of a program; what else is to be
// queued beside it answers the same questions. Its owner keeps it until it has
// left the queue.
class WEIR_EXPORT QueueItem {
 public:
  enum class Step : uint8_t {
    kRun,      // it went on, or left the queue: the first one is asked again
    kWait,     // it was parked or lent (WorkQueue::Park, Lend); else we abort
    kBlocked,  // what it needs is in use: asked again at the next Wake or Pump
  };

  QueueItem() = default;
  QueueItem(const QueueItem&) = delete;
  QueueItem& operator=(const QueueItem&) = delete;

  // Its next stage. Asked of the first one, while it is wanted, by the thread
  // that drives. Where it ends here it has left the queue before (Remove); it
  // may be gone when this returns, as one may be that was lent.
  virtual Step Next() = 0;

  // Why nobody wants it any more (CANCELLED, DEADLINE_EXCEEDED); else OK. Asked
  // under the queue's lock.
  virtual absl::Status Wanted(Nanos now) const = 0;

  // From when on it is not wanted. Asked under the queue's lock.
  virtual Nanos deadline() const = 0;

  // It is not wanted, or its wait ended with `status`: it leaves the queue, or
  // is replaced there, before this returns, and calls off what it waits for.
  // Lent to the thread that drives, which calls this.
  virtual void Drop(absl::Status status) = 0;

 protected:
  virtual ~QueueItem() = default;

 private:
  friend class WorkQueue;
  QueueItem* next_ = nullptr;
  bool lent_ = false;  // guarded by the queue's lock
};

class WEIR_EXPORT WorkQueue : public std::enable_shared_from_this<WorkQueue> {
 public:
  // `executor` and `timers` are there while something is in the queue.
  static std::shared_ptr<WorkQueue> Create(Executor* executor,
                                           TimerQueue* timers);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // To the end, lent: it is whole, and comes into question, after Return.
  void Append(QueueItem* item);

  // Takes it out. By whoever drives it, or has it lent.
  void Remove(QueueItem* item);

  // `items` stand where `item` stood; if it has left, in front. They are lent.
  void Replace(QueueItem* item, absl::Span<QueueItem* const> items);

  // Drives the first item as far as it goes, unless another thread does.
  void Pump();

  // The same, later, on the executor: room was made, or an item is not wanted
  // any more.
  void Wake();
  void Sweep();

  // -- Of an item in Next.

  // It answers kWait, and waits until Resume or Take is told the number that
  // this returns. What it waits for ends that in time; where it does not
  // (`timed`), the queue drops the item at its deadline, which may be an
  // earlier one as long as it waits.
  uint64_t Park(bool timed = false);
  // That wait is over; the queue goes on through the executor. An error drops
  // the item. False, and nothing happens, if the item has gone meanwhile.
  // `first` runs before anybody goes on, under the lock, and only if true.
  bool Resume(uint64_t wait, absl::Status status,
              absl::FunctionRef<void()> first);
  bool Resume(uint64_t wait, absl::Status status) {
    return Resume(wait, std::move(status), [] {});
  }
  // The same, and the item is the caller's, as after Lend.
  bool Take(uint64_t wait);

  // Somebody has the item, wherever it stands in the queue: nobody else drops
  // it. Whoever has it removes it, or brings it back, which drives the queue.
  void Lend(QueueItem* item);
  void Return(QueueItem* item);

  // -- Nothing is driven while somebody holds the queue; Release wakes it.
  void Hold();
  void Release();

 private:
  WorkQueue(Executor* executor, TimerQueue* timers)
      : executor_(executor), timer_(timers) {}

  bool Drive() WEIR_REQUIRES(mu_);  // false: nothing to be done now
  bool DropUnwanted() WEIR_REQUIRES(mu_);
  void Unlink(QueueItem* item) WEIR_REQUIRES(mu_);
  void NoWait() WEIR_REQUIRES(mu_);  // of the first one
  void PostPump() WEIR_REQUIRES(mu_);
  void SetTimer() WEIR_REQUIRES(mu_);
  void TimerFired();

  Executor* const executor_;

  Mutex mu_;
  QueueItem* head_ WEIR_GUARDED_BY(mu_) = nullptr;
  QueueItem* tail_ WEIR_GUARDED_BY(mu_) = nullptr;
  bool pumping_ WEIR_GUARDED_BY(mu_) = false;
  bool pump_again_ WEIR_GUARDED_BY(mu_) = false;
  bool sweep_ WEIR_GUARDED_BY(mu_) = false;  // some item may be unwanted
  // In Next, until it is parked or lent or has left.
  const QueueItem* asked_ WEIR_GUARDED_BY(mu_) = nullptr;
  uint64_t last_wait_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t parked_ WEIR_GUARDED_BY(mu_) = 0;  // the first one's number, or 0
  bool timed_ WEIR_GUARDED_BY(mu_) = false;   // while it is parked
  absl::Status resumed_ WEIR_GUARDED_BY(mu_);
  size_t holds_ WEIR_GUARDED_BY(mu_) = 0;
  // No deadline in the queue is earlier, but for what is lent.
  Nanos earliest_ WEIR_GUARDED_BY(mu_) = kNoDeadline;
  DeadlineTimer timer_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
