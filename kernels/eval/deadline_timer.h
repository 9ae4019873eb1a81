// A timer for the earliest of several deadlines. No thread rules of its own:
// its owner's lock guards it, under which it is told that it fired, too.
#pragma once

#include <utility>

#include "absl/functional/any_invocable.h"
#include "kernels/base/clock.h"
#include "kernels/base/timer_queue.h"

namespace weir {

class DeadlineTimer {
 public:
  // `timers` is there while it is set.
  explicit DeadlineTimer(TimerQueue* timers) : timers_(timers) {}
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;

  // `fire` runs at `at`, on the timers' thread, unless it is set for before
  // that, or for then.
  void Set(Nanos at, absl::AnyInvocable<void()> fire) {
    if (at >= at_) return;
    Stop();
    at_ = at;
    id_ = timers_->Add(at, std::move(fire));
  }

  // What fires at this moment may be on its way.
  void Stop() {
    if (id_ != 0) timers_->Cancel(std::exchange(id_, 0));
    at_ = kNoDeadline;
  }

  // Said by what fires. It may have been set anew meanwhile: then that fires as
  // well.
  void Fired() {
    id_ = 0;
    at_ = kNoDeadline;
  }

 private:
  TimerQueue* const timers_;
  TimerQueue::TimerId id_ = 0;
  Nanos at_ = kNoDeadline;
};

}  // namespace weir
