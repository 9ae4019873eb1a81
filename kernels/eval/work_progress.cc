#include "kernels/eval/work_progress.h"

#include <utility>

namespace weir {

uint64_t WorkProgress::Watch(Watcher watcher) {
  MutexLock lock(&mu_);
  watched_.store(true);
  const WorkState now = state_.load();
  if (now >= WorkState::kCompleted) return 0;
  watcher(now);
  watchers_.push_back({++last_, now, std::move(watcher)});
  return last_;
}

void WorkProgress::Unwatch(uint64_t watch) {
  MutexLock lock(&mu_);
  std::erase_if(watchers_, [watch](const Watching& watching) {
    return watching.number == watch;
  });
}

void WorkProgress::Advance(WorkState to) {
  state_.store(to);
  if (!watched_.load()) return;
  MutexLock lock(&mu_);
  for (Watching& watching : watchers_) {
    if (watching.told >= to) continue;
    watching.told = to;
    watching.watcher(to);
  }
}

std::vector<WorkProgress::Watching> WorkProgress::TakeWatchers() {
  if (!watched_.load()) return {};
  MutexLock lock(&mu_);
  watched_.store(false);
  return std::move(watchers_);
}

}  // namespace weir
