#include "server/spaces/kept_work.h"

namespace weir {

void KeptWork::Ended(const Work& work) {
  std::shared_ptr<Work> ended;  // goes, if it does, outside the lock
  MutexLock lock(&mu_);
  ended = std::move(work_);
  end_.emplace(End{work.status(), work.report()});
}

WorkState KeptWork::state() const {
  MutexLock lock(&mu_);
  return end_.has_value() ? end_->report.state : work_->state();
}

Point KeptWork::point() const {
  MutexLock lock(&mu_);
  return work_ == nullptr ? Point() : work_->point();
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
