#include "server/spaces/kept_work.h"

#include <algorithm>

namespace weir {

void KeptWork::Ended(const Work& work) {
  // Go, if they do, outside the lock.
  std::shared_ptr<Work> done;
  Point ended;
  std::vector<Watching> watchers;
  MutexLock lock(&mu_);
  done = std::move(work_);
  ended = std::move(ended_);
  end_.emplace(End{work.status(), work.report()});
  watchers.swap(watchers_);
  for (const Watching& each : watchers) each.watcher();
}

uint64_t KeptWork::Watch(const Watcher& watcher) {
  std::shared_ptr<Work> work;
  uint64_t watch = 0;
  {
    MutexLock lock(&mu_);
    if (end_.has_value()) return 0;
    watch = ++last_watch_;
    watchers_.push_back({watch, /*of_work=*/0, watcher});
    work = work_;
  }
  // It is told of now at once, which may ask for the state.
  const uint64_t of_work = work->Watch([watcher](WorkState) { watcher(); });
  MutexLock lock(&mu_);
  for (Watching& each : watchers_) {
    if (each.number == watch) each.of_work = of_work;
  }
  return watch;
}

void KeptWork::Unwatch(uint64_t watch) {
  std::shared_ptr<Work> work;
  uint64_t of_work = 0;
  {
    MutexLock lock(&mu_);
    std::erase_if(watchers_, [&](const Watching& each) {
      if (each.number != watch) return false;
      of_work = each.of_work;
      return true;
    });
    work = work_;
  }
  if (work != nullptr && of_work != 0) work->Unwatch(of_work);
}

WorkState KeptWork::state() const {
  MutexLock lock(&mu_);
  if (end_.has_value()) return end_->report.state;
  // Its end is told with what became of it.
  return std::min(work_->state(), WorkState::kScheduled);
}

Point KeptWork::ended() const {
  MutexLock lock(&mu_);
  return ended_;
}

void KeptWork::Cancel() {
  std::shared_ptr<Work> work;
  {
    MutexLock lock(&mu_);
    work = work_;
  }
  if (work != nullptr) work->Cancel();
}

std::optional<KeptWork::End> KeptWork::end() const {
  MutexLock lock(&mu_);
  return end_;
}

}  // namespace weir
