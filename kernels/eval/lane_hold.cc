#include "kernels/eval/lane_hold.h"

namespace weir {

LaneClaim& LaneClaim::operator=(LaneClaim&& other) noexcept {
  if (this != &other) {
    Reset();
    hold_ = std::exchange(other.hold_, nullptr);
    lane_ = std::exchange(other.lane_, nullptr);
  }
  return *this;
}

void LaneClaim::Reset() {
  lane_ = nullptr;
  if (LaneHold* const hold = std::exchange(hold_, nullptr)) hold->Unclaim();
}

LaneClaim LaneHold::Claim() {
  MutexLock lock(&mu_);
  if (!lease_) return {};
  claimed_ = true;
  return LaneClaim(this, lease_.lane());
}

LaneClaim LaneHold::Give(StreamLease lease) {
  MutexLock lock(&mu_);
  lease_ = std::move(lease);
  claimed_ = true;
  return LaneClaim(this, lease_.lane());
}

bool LaneHold::IsOn(const Timeline* timeline) const {
  MutexLock lock(&mu_);
  return lease_ && lease_.stream().timeline().get() == timeline;
}

bool LaneHold::Begin(LaneClaim& claim, size_t launches) {
  MutexLock lock(&mu_);
  if (works_ >= Stream::kMaxUnfinished ||
      (works_ > 0 && launches_ + launches > max_launches_)) {
    full_ = true;
    return false;
  }
  claimed_ = false;
  claim.hold_ = nullptr;
  claim.lane_ = nullptr;
  ++works_;
  launches_ += launches;
  return true;
}

bool LaneHold::End(size_t launches, bool suspect) {
  StreamLease unused;  // goes without the lock
  MutexLock lock(&mu_);
  if (suspect) lease_.MarkSuspect();
  --works_;
  launches_ -= launches;
  unused = TakeUnused();
  const bool has_room = full_ && works_ <= Stream::kMaxUnfinished / 2 &&
                        launches_ <= max_launches_ / 2;
  if (has_room) full_ = false;
  return has_room;
}

void LaneHold::Unclaim() {
  StreamLease unused;  // goes without the lock
  MutexLock lock(&mu_);
  claimed_ = false;
  full_ = false;
  unused = TakeUnused();
}

StreamLease LaneHold::TakeUnused() {
  if (works_ > 0 || claimed_) return {};
  return std::move(lease_);
}

}  // namespace weir
