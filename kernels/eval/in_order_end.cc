#include "kernels/eval/in_order_end.h"

#include <utility>

namespace weir {

uint64_t InOrderEnd::Take(size_t count, size_t limit) {
  MutexLock lock(&mu_);
  if (unfinished_ + count > limit) return 0;
  unfinished_ += count;
  last_ += count;
  return last_ - count + 1;
}

uint64_t InOrderEnd::last() const {
  MutexLock lock(&mu_);
  return last_;
}

size_t InOrderEnd::unfinished() const {
  MutexLock lock(&mu_);
  return unfinished_;
}

void InOrderEnd::End(uint64_t number, absl::Status status) {
  // It grows by construction: Advance cannot refuse.
  MutexLock lock(&mu_);
  --unfinished_;
  if (number != next_ || advancing_) {
    ended_.emplace(number, status);
    if (status.ok()) return;
    mu_.Unlock();
    timeline_->FailAhead(number, std::move(status));
    mu_.Lock();
    return;
  }
  advancing_ = true;
  while (true) {
    ++next_;
    // Continuations run without the lock.
    mu_.Unlock();
    timeline_->Advance(number, std::move(status)).IgnoreError();
    mu_.Lock();
    if (ended_.empty() || ended_.begin()->first != next_) break;
    auto ended = ended_.extract(ended_.begin());
    number = ended.key();
    status = std::move(ended.mapped());
  }
  advancing_ = false;
}

}  // namespace weir
