#include "kernels/base/timer_queue.h"

#include "kernels/base/thread_role.h"

namespace weir {

TimerQueue::TimerQueue() : thread_("weir-timers", [this] { Run(); }) {}

TimerQueue::~TimerQueue() { Stop(); }

TimerQueue::TimerId TimerQueue::Add(Nanos deadline,
                                    absl::AnyInvocable<void()> callback) {
  if (deadline == kNoDeadline) return 0;
  MutexLock lock(&mu_);
  const TimerId id = next_id_++;
  const auto it = timers_.emplace(Key{deadline, id}, std::move(callback)).first;
  deadlines_.emplace(id, deadline);
  if (it == timers_.begin()) changed_.NotifyOne();
  return id;
}

bool TimerQueue::Cancel(TimerId id) {
  absl::AnyInvocable<void()> dropped;  // destroyed outside the lock
  MutexLock lock(&mu_);
  const auto it = deadlines_.find(id);
  if (it == deadlines_.end()) return false;
  const auto timer = timers_.find(Key{it->second, id});
  dropped = std::move(timer->second);
  timers_.erase(timer);
  deadlines_.erase(it);
  return true;
}

size_t TimerQueue::pending() const {
  MutexLock lock(&mu_);
  return deadlines_.size();
}

void TimerQueue::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.NotifyOne();
  }
  if (thread_.Joinable()) thread_.Join();
}

void TimerQueue::Run() {
  const ScopedThreadRole role(ThreadRole::kTimer);
  mu_.Lock();
  while (!stopping_) {
    if (timers_.empty()) {
      changed_.Wait(&mu_);
      continue;
    }
    const auto first = timers_.begin();
    if (first->first.first > NowNanos()) {
      changed_.WaitUntil(&mu_, ToTimePoint(first->first.first));
      continue;
    }
    auto callback = std::move(first->second);
    deadlines_.erase(first->first.second);
    timers_.erase(first);
    mu_.Unlock();
    callback();
    callback = nullptr;
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace weir
