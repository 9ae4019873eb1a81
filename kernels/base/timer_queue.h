// Runs callbacks at deadlines on one thread. Callbacks must be short (they post
// work elsewhere). Thread-safe. Stop() waits for a running callback; whatever
// has not fired by then never does.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"

namespace weir {

class WEIR_EXPORT TimerQueue {
 public:
  using TimerId = uint64_t;  // 0 is never a timer

  TimerQueue();
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // `deadline` in the past fires as soon as possible; kNoDeadline never fires
  // and returns 0.
  TimerId Add(Nanos deadline, absl::AnyInvocable<void()> callback);

  // True if the callback will not run; false if it has run or is running.
  bool Cancel(TimerId id);

  // Timers that have not fired.
  size_t pending() const;

  void Stop();

 private:
  using Key = std::pair<Nanos, TimerId>;

  void Run();

  mutable Mutex mu_;
  CondVar changed_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  TimerId next_id_ WEIR_GUARDED_BY(mu_) = 1;
  std::map<Key, absl::AnyInvocable<void()>> timers_ WEIR_GUARDED_BY(mu_);
  std::unordered_map<TimerId, Nanos> deadlines_ WEIR_GUARDED_BY(mu_);
  Thread thread_;
};

}  // namespace weir
