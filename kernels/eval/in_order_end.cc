#include "kernels/eval/in_order_end.h"

#include <utility>

namespace weir {

void InOrderEnd::End(uint64_t number, absl::Status status) {
  // It grows by construction: Advance cannot refuse.
  MutexLock lock(&mu_);
  if (number != next_ || advancing_) {
    ended_.emplace(number, std::move(status));
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
