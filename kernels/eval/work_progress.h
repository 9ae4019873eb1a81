// How far a work has come, and who wants to be told. One thread at a time moves
// it on, as the work has it; everything else may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/eval_mode.h"

namespace weir {

class WEIR_EXPORT WorkProgress {
 public:
  // Runs under a lock: it notes and posts, and asks for nothing but the state.
  using Watcher = absl::AnyInvocable<void(WorkState)>;

  struct Watching {
    uint64_t number = 0;
    WorkState told = WorkState::kNotEnqueued;
    Watcher watcher;
  };

  WorkProgress() = default;
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  WorkState state() const { return state_.load(std::memory_order_acquire); }
  bool done() const { return state() >= WorkState::kCompleted; }

  // `watcher` is told the state of now and later ones, in order, each at most
  // once (one that passes quickly may be left out), kCompleted or kError last.
  // Returns a number for Unwatch, or 0 if the work is done.
  uint64_t Watch(Watcher watcher);
  // The watcher does not run any more once this returns.
  void Unwatch(uint64_t watch);

  // Only forward; who watches is told.
  void Advance(WorkState to);

  // Whoever watches still, when the work is done: for the caller to let go of
  // when nothing else is left to do, since they may hold the work.
  std::vector<Watching> TakeWatchers();

  // Nothing has happened yet. REQUIRES: nobody watches.
  void Reset() { state_.store(WorkState::kNotEnqueued); }

 private:
  Atomic<WorkState> state_{WorkState::kNotEnqueued};
  // Whoever moves the state on writes it and then reads this; a watcher sets
  // this and then reads the state: at least one of them sees the other.
  Atomic<bool> watched_{false};
  Mutex mu_;
  uint64_t last_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<Watching> watchers_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
