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
  void Add(std::shared_ptr<Work> work);
  // Its number among those added since the last TakeAll, from 1.
  static uint64_t Number(const Work& work);

  // Takes out what `work`, of the context `here` as these are, reads or comes
  // after, what that depends on, and so on: everything up to the last of them,
  // so that order is kept. If it may wait for another context, which may wait
  // for these, all but what waits for it and what comes behind that.
  Works TakeBefore(const Work& work, const EvalContext& here);
  Works TakeAll();

  // A work may not be wanted any more (Work::Wanted): it goes, later.
  void Sweep();

 private:
  DeferredSet(Executor* executor, TimerQueue* timers, GiveUp give_up)
      : executor_(executor), give_up_(std::move(give_up)), timer_(timers) {}

  using Line = std::deque<std::shared_ptr<Work>>;
  static bool MayWaitElsewhere(const Work& work, const EvalContext& here,
                               const Line& deferred);
  Works Take(size_t count) WEIR_REQUIRES(mu_);  // the first ones
  void GiveUpUnwanted();
  void PostGiveUp() WEIR_REQUIRES(mu_);
  void SetTimer(Nanos at) WEIR_REQUIRES(mu_);
  void TimerFired();

  Executor* const executor_;
  const GiveUp give_up_;

  mutable Mutex mu_;
  Line works_ WEIR_GUARDED_BY(mu_);
  uint64_t added_ WEIR_GUARDED_BY(mu_) = 0;  // since TakeAll
  bool posted_ WEIR_GUARDED_BY(mu_) = false;
  DeadlineTimer timer_ WEIR_GUARDED_BY(mu_);  // set while a work is here
};

}  // namespace weir
