// How a pool's lanes come and go: where they are made, examined, trimmed and
// ended.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/device/stream_pool_state.h"

namespace weir {

absl::Status StreamPool::State::Prepare() {
  for (size_t i = 0; i < options_.reserved; ++i) {
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Lane> lane, CreateLane());
    MutexLock lock(&mu_);
    Lane* const kept = Keep(std::move(lane));
    lanes_.Change(/*leased=*/0, /*idle=*/1);
    PutBack(kept);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Lane>> StreamPool::State::CreateLane() {
  WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream,
                        device_->CreateStream(options_.priority));
  MutexLock lock(&mu_);
  return std::make_unique<Lane>(std::move(stream), next_lane_++, &arenas_);
}

Lane* StreamPool::State::Keep(std::unique_ptr<Lane> lane) {
  Lane* const kept = lanes_.Add(std::move(lane));
  ++created_total_;
  SetRemovable();
  return kept;
}

absl::StatusOr<StreamLease> StreamPool::State::CreateLeased() {
  absl::StatusOr<std::unique_ptr<Lane>> lane = CreateLane();
  MutexLock lock(&mu_);
  --creating_;
  changed_.NotifyAll();
  if (!lane.ok()) return lane.status();
  Lane* const kept = Keep(*std::move(lane));
  lanes_.Change(/*leased=*/1, /*idle=*/0);
  ArmTrimTimer();  // the idle ones may be more than are reserved now
  return LeaseOut(kept);
}

// Whoever waits longest gets the lane, or the error.
void StreamPool::State::CreateForWaiters() {
  threads_.run_making([self = shared_from_this()] {
    absl::StatusOr<std::unique_ptr<Lane>> lane = self->CreateLane();
    const absl::Status made = lane.status();
    LeaseCallback unserved;
    {
      MutexLock lock(&self->mu_);
      --self->creating_;
      self->changed_.NotifyAll();
      if (made.ok()) {
        Lane* const kept = self->Keep(*std::move(lane));
        self->lanes_.Change(/*leased=*/0, /*idle=*/1);
        self->PutBack(kept);
      } else if (!self->waiters_.empty()) {
        unserved = self->TakeFirstWaiter();
      }
    }
    if (unserved) unserved(made);
    self->Serve();
  });
}

// Asks the device whether a lane that drains may be used again. May take long.
void StreamPool::State::Examine(Lane* lane) {
  const bool usable = Usable(*lane);
  const bool lost = device_->health().poisoned();
  bool destroy = false;
  {
    MutexLock lock(&mu_);
    --draining_;
    changed_.NotifyAll();
    // As TakeBack does: there may be no run_slow any more.
    if (usable || (stopping_ && !lost)) {
      lanes_.Change(/*leased=*/0, /*idle=*/1);
      PutBack(lane);
    } else {
      ++retired_;
      SetRemovable();
      destroy = lost || threads_.run_slow == nullptr;
      if (!destroy) {
        threads_.run_slow(
            [self = shared_from_this(), lane] { self->Destroy({lane}); });
      }
    }
  }
  if (destroy) Destroy({lane});
  Serve();
}

bool StreamPool::State::Usable(Lane& lane) {
  // A timeline that failed as a whole never comes to rest.
  if (!lane.stream().idle() || device_->health().poisoned()) return false;
  if (lane.suspect_ && !lane.stream().Check().ok()) return false;
  lane.suspect_ = false;
  return true;
}

size_t StreamPool::State::Removable() const {
  const size_t living = created() - retired_;
  return living > options_.reserved ? living - options_.reserved : 0;
}

StreamPool::State::Lanes StreamPool::State::Retire(size_t most, Nanos since) {
  most = std::min(most, Removable());
  if (most == 0) return {};
  Lanes lanes = lanes_.TakeAllIdle();
  size_t count = 0;
  while (count < std::min(most, lanes.size()) &&
         lanes[count]->idle_since_ <= since) {
    ++count;
  }
  const auto end = lanes.begin() + static_cast<ptrdiff_t>(count);
  Lanes retired(lanes.begin(), end);
  lanes.erase(lanes.begin(), end);
  lanes_.PutAllIdle(lanes);
  lanes_.Change(/*leased=*/0, -static_cast<int>(count));
  retired_ += count;
  SetRemovable();
  return retired;
}

// The lane is out of the pool meanwhile, for freeing is slow, and goes back to
// its place.
bool StreamPool::State::DropIdleArena(Nanos since) {
  Lane* lane = nullptr;
  {
    MutexLock lock(&mu_);
    Lanes lanes = lanes_.TakeAllIdle();
    const auto found =
        std::find_if(lanes.begin(), lanes.end(), [since](const Lane* idle) {
          return idle->arena_bytes() > 0 && idle->idle_since_ <= since;
        });
    if (found != lanes.end()) {
      lane = *found;
      lanes.erase(found);
      lanes_.Change(/*leased=*/0, /*idle=*/-1);
      ++draining_;
    }
    lanes_.PutAllIdle(lanes);
  }
  if (lane == nullptr) return false;
  lane->DropArena();
  {
    MutexLock lock(&mu_);
    --draining_;
    lanes_.Change(/*leased=*/0, /*idle=*/1);
    Lanes lanes = lanes_.TakeAllIdle();
    const auto place =
        std::upper_bound(lanes.begin(), lanes.end(), lane,
                         [](const Lane* one, const Lane* other) {
                           return one->idle_since_ < other->idle_since_;
                         });
    lanes.insert(place, lane);
    lanes_.PutAllIdle(lanes);
    changed_.NotifyAll();
    ArmTrimTimer();
  }
  Serve();  // whoever found no lane meanwhile
  return true;
}

bool StreamPool::State::TrimIsArmedFor(bool has_arena) const {
  return trim_armed_.load() || !trims() || !(has_arena || removable_.load());
}

void StreamPool::State::ArmTrimTimer() {
  if (trim_armed_.load() || stopping_ || !trims()) return;
  // Who returns a lane without the lock is seen here, or sees that it is not
  // armed.
  const bool goes = Removable() > 0;
  const Lanes lanes = lanes_.TakeAllIdle();
  // The first that will go, or whose arena will.
  const auto first = std::find_if(
      lanes.begin(), lanes.end(),
      [goes](const Lane* lane) { return goes || lane->arena_bytes() > 0; });
  const Nanos due =
      first == lanes.end() ? kNoDeadline : (*first)->idle_since_ + idle_ttl_;
  lanes_.PutAllIdle(lanes);
  if (due == kNoDeadline) return;
  trim_armed_.store(true);
  trim_timer_ = timers_->Add(due, [weak = weak_from_this()] {
    const auto self = HoldIfThere(weak);
    if (self == nullptr) return;
    if (self->threads_.run_slow == nullptr) {
      self->TrimExpired();
      return;
    }
    self->threads_.run_slow([weak] {
      if (auto self = HoldIfThere(weak)) self->TrimExpired();
    });
  });
}

// One lane after the other: the rest is there for whoever comes meanwhile.
void StreamPool::State::TrimExpired() {
  for (;;) {
    Lanes retired;
    {
      MutexLock lock(&mu_);
      retired = Retire(1, NowNanos() - idle_ttl_);
    }
    if (retired.empty()) break;
    Destroy(retired);
  }
  // What stays needs no memory.
  while (DropIdleArena(NowNanos() - idle_ttl_)) {
  }
  MutexLock lock(&mu_);
  trim_armed_.store(false);
  ArmTrimTimer();
}

size_t StreamPool::State::Trim(size_t keep) {
  Lanes retired;
  {
    MutexLock lock(&mu_);
    const size_t idle = lanes_.count().idle;
    retired = Retire(idle > keep ? idle - keep : 0, kNoDeadline);
  }
  Destroy(retired);
  return retired.size();
}

void StreamPool::State::Destroy(const Lanes& lanes) {
  if (lanes.empty()) return;
  for (Lane* lane : lanes) {
    lanes_.Remove(lane);  // slow, outside the lock
    MutexLock lock(&mu_);
    --retired_;
    ++destroyed_total_;
    changed_.NotifyAll();
  }
  Serve();  // there is room for new lanes
}

}  // namespace weir
