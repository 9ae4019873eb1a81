// The works of a context that wait for Flush, or for a use of what they make:
// in the order of their submission. One that nobody wants any more is given up
// at once, on the executor.
//
// Thread-safe; what is taken out belongs to whoever took it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "kernels/eval/deadline_timer.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/work.h"

namespace weir {

class WEIR_EXPORT DeferredSet
    : public std::enable_shared_from_this<DeferredSet> {
 public:
  using Works = std::vector<std::shared_ptr<Work>>;

  // Ends a work that has left the set since nobody wants it any more; `why` is
  // CANCELLED or DEADLINE_EXCEEDED.
  using GiveUp = absl::AnyInvocable<void(Work& work, absl::Status why) const>;

  // `executor` and `timers` are there while a work is in the set.
  static std::shared_ptr<DeferredSet> Create(Executor* executor,
                                             TimerQueue* timers,
                                             GiveUp give_up);
  DeferredSet(const DeferredSet&) = delete;
  DeferredSet& operator=(const DeferredSet&) = delete;

  size_t size() const;
  // Works that were added, ever.
  uint64_t added() const;
  // Returns its number. It may be over, and gone, by then.
  uint64_t Add(std::shared_ptr<Work> work);
  // Its number among all that were added, from 1.
  static uint64_t Number(const Work& work);

  // Takes out what `work`, of the context `here` as these are, reads or comes
  // after, what that depends on, and so on: everything up to the last of them,
  // so that order is kept. If it may wait for another context, which may wait
  // for these, all but what waits for it and what comes behind that.
  Works TakeBefore(const Work& work, const EvalContext& here);
  Works TakeAll();
  // Takes out the last of those with lesser numbers than `below` that nobody
  // reads (Work::IsUnread) or waits for (Want); null if there is none. Whoever
  // ends it lets go of what it reads.
  std::shared_ptr<Work> TakeUnread(uint64_t below);

  // Somebody waits for what becomes of the one with this number: if it is here,
  // it is never unread, and `run` is posted to the executor, once for all that
  // are wanted until it takes them (TakeWanted).
  void Want(uint64_t number, Executor::Task run);
  // Takes out those that are wanted, and what was added before the last of
  // them.
  Works TakeWanted();

  // A work may not be wanted any more (Work::Wanted): it goes, later.
  void Sweep();
  // The same at once, on this thread.
  void GiveUpUnwanted();

 private:
  DeferredSet(Executor* executor, TimerQueue* timers, GiveUp give_up)
      : executor_(executor), give_up_(std::move(give_up)), timer_(timers) {}

  using Line = std::deque<std::shared_ptr<Work>>;
  static bool MayWaitElsewhere(const Work& work, const EvalContext& here,
                               const Line& deferred);
  // The first with this number or a greater one.
  Line::iterator From(uint64_t number) WEIR_REQUIRES(mu_);
  Works Take(size_t count) WEIR_REQUIRES(mu_);  // the first ones
  void WereTaken() WEIR_REQUIRES(mu_);
  void PostGiveUp() WEIR_REQUIRES(mu_);
  void SetTimer(Nanos at) WEIR_REQUIRES(mu_);
  void TimerFired();

  Executor* const executor_;
  const GiveUp give_up_;

  mutable Mutex mu_;
  Line works_ WEIR_GUARDED_BY(mu_);
  uint64_t added_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t wanted_ WEIR_GUARDED_BY(mu_) = 0;  // the newest of the wanted
  bool posted_ WEIR_GUARDED_BY(mu_) = false;
  DeadlineTimer timer_ WEIR_GUARDED_BY(mu_);  // set while a work is here
};

}  // namespace weir
