#include "kernels/eval/lane_hold.h"

#include <utility>

#include "kernels/device/completion.h"

namespace weir {
namespace {

// A stream takes no more unfinished works than this.
constexpr size_t kMaxWorks = CompletionRecord::kSlots;

}  // namespace

bool LaneHold::Claim() {
  MutexLock lock(&mu_);
  claimed_ = static_cast<bool>(lease_);
  return claimed_;
}

void LaneHold::Give(StreamLease lease) {
  MutexLock lock(&mu_);
  lease_ = std::move(lease);
  claimed_ = true;
}

Lane* LaneHold::lane() const {
  MutexLock lock(&mu_);
  return lease_.lane();
}

bool LaneHold::Begin(size_t launches) {
  MutexLock lock(&mu_);
  if (works_ >= kMaxWorks ||
      (works_ > 0 && launches_ + launches > max_launches_)) {
    full_ = true;
    return false;
  }
  claimed_ = false;
  ++works_;
  launches_ += launches;
  return true;
}

LaneHold::Ended LaneHold::End(size_t launches, bool suspect) {
  MutexLock lock(&mu_);
  if (suspect) lease_.MarkSuspect();
  --works_;
  launches_ -= launches;
  return Settle();
}

LaneHold::Ended LaneHold::Unclaim() {
  MutexLock lock(&mu_);
  claimed_ = false;
  full_ = false;
  return Settle();
}

LaneHold::Ended LaneHold::Settle() {
  Ended ended;
  if (full_ && works_ <= kMaxWorks / 2 && launches_ <= max_launches_ / 2) {
    full_ = false;
    ended.has_room = true;
  }
  if (works_ == 0 && !claimed_) ended.lease = std::move(lease_);
  return ended;
}

}  // namespace weir
