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

// A work may be used again for another request once Ended has returned: what
// concerns it happens before, under the lock.
uint64_t KeptWork::Watch(const Watcher& watcher) {
  MutexLock lock(&mu_);
  if (end_.has_value()) return 0;
  const uint64_t of_work = work_->Watch([watcher](WorkState) { watcher(); });
  watchers_.push_back({++last_watch_, of_work, watcher});
  return last_watch_;
}

void KeptWork::Unwatch(uint64_t watch) {
  MutexLock lock(&mu_);
  const auto found =
      std::find_if(watchers_.begin(), watchers_.end(),
                   [&](const Watching& each) { return each.number == watch; });
  if (found == watchers_.end()) return;
  work_->Unwatch(found->of_work);
  watchers_.erase(found);
}

void KeptWork::TellEnded() {
  std::vector<absl::AnyInvocable<void()>> followers;
  {
    MutexLock lock(&mu_);
    told_ = true;
    followers.swap(followers_);
  }
  for (auto& told : followers) told();
}

void KeptWork::OnEnded(absl::AnyInvocable<void()> told) {
  {
    MutexLock lock(&mu_);
    if (!told_) {
      followers_.push_back(std::move(told));
      return;
    }
  }
  told();
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
