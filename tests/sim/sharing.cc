#include "tests/sim/sharing.h"

#include <algorithm>
#include <cstdlib>

#include "tests/sim/heap.h"

namespace weir::sim {

void Sharing::Begin() {
  learned_ = false;
  threads_ = 1;  // the clock
  clocks_.assign(1, Clock());
  Release(kClock);
  holders_.clear();
  times_.clear();
  used_ = 0;
}

void Sharing::End() { holders_.clear(); }

void Sharing::Start(int thread, int parent) {
  threads_ = static_cast<size_t>(thread) + 1;
  if (threads_ > Clock::kThreads) std::abort();
  clocks_.push_back(parent == kClock ? Clock() : of(parent));
  of(thread).at[static_cast<size_t>(thread)] = 1;
  if (parent != kClock) Release(parent);
}

void Sharing::Follow(int thread, int other) {
  Join(of(thread), of(other));
  Release(other);
}

void Sharing::PassTime(Nanos now, Trail& clock) {
  Touch(kClock, clock, Access::kWrite);
  const OutsideHeap mine;
  times_.emplace_back(now, *clock.writes);
}

void Sharing::Wake(int thread, Nanos wake_at) {
  const auto came = std::lower_bound(
      times_.begin(), times_.end(), wake_at,
      [](const auto& time, Nanos at) { return time.first < at; });
  if (came != times_.end()) Join(of(thread), came->second);
}

void Sharing::MeetAll() {
  Clock all;
  for (const Clock& clock : clocks_) Join(all, clock);
  for (size_t i = 0; i < threads_; ++i) {
    clocks_[i] = all;
    Release(static_cast<int>(i));
  }
}

void Sharing::MakeVisible(Trail& trail) {
  if (trail.visible) return;
  const OutsideHeap mine;
  visible_.insert(trail.place);
  places_.insert(trail.place);
  trail.visible = trail.shared = true;
  learned_ = true;
}

Clock* Sharing::NewClock() {
  const OutsideHeap mine;
  if (used_ == pool_.size()) pool_.emplace_back();
  Clock* const clock = &pool_[used_++];
  std::fill_n(clock->at.begin(), Clock::kThreads, 0);
  return clock;
}

bool Sharing::Covers(const Clock& clock, const Clock& other) const {
  bool covers = true;
  for (size_t i = 0; i < threads_; ++i) covers &= clock.at[i] >= other.at[i];
  return covers;
}

void Sharing::Join(Clock& clock, const Clock& other) const {
  for (size_t i = 0; i < threads_; ++i) {
    clock.at[i] = std::max(clock.at[i], other.at[i]);
  }
}

// What a run says after the first surprise may be no more than its echo.
void Sharing::Learn(const void* place) {
  if (learned_) return;
  const OutsideHeap mine;
  learned_ = true;
  places_.insert(place);
}

void Sharing::Touch(int thread, Trail& trail, Access access) {
  if (trail.shared) return TouchShared(thread, trail, access);
  if (trail.writer == thread && trail.reader < 0 && trail.reads == nullptr) {
    trail.written = of(thread).at[static_cast<size_t>(thread)];
    return;
  }
  bool ordered = Knows(thread, trail.writer, trail.written);
  const uint32_t now = of(thread).at[static_cast<size_t>(thread)];
  if (access == Access::kWrite) {
    ordered &= Knows(thread, trail.reader, trail.read) &&
               (trail.reads == nullptr || Covers(of(thread), *trail.reads));
    trail.writer = thread;
    trail.written = now;
    trail.reader = -1;
    trail.reads = nullptr;
  } else if (trail.reads != nullptr) {
    trail.reads->at[static_cast<size_t>(thread)] = now;
  } else if (Knows(thread, trail.reader, trail.read)) {
    trail.reader = thread;
    trail.read = now;
  } else {
    trail.reads = NewClock();
    trail.reads->at[static_cast<size_t>(trail.reader)] = trail.read;
    trail.reads->at[static_cast<size_t>(thread)] = now;
  }
  if (!ordered) Learn(trail.place);
}

void Sharing::TouchShared(int thread, Trail& trail, Access access) {
  if (trail.writes == nullptr) {
    trail.writes = NewClock();
    trail.reads = NewClock();
  }
  Clock& clock = of(thread);
  Join(clock, *trail.writes);
  if (access == Access::kWrite) {
    Join(clock, *trail.reads);
    *trail.writes = clock;
  } else {
    Join(*trail.reads, clock);
  }
  Release(thread);
}

void Sharing::Drop(int thread, const void* count, const void* place,
                   bool last) {
  const OutsideHeap mine;
  Holders& holders = holders_[count];
  Clock& clock = of(thread);
  const bool shared = IsShared(place);
  if (!shared) {
    const bool ordered =
        (!last || holders.drops == nullptr || Covers(clock, *holders.drops)) &&
        (holders.looks == nullptr || Covers(clock, *holders.looks));
    if (!ordered) Learn(place);
  }
  if (last) {
    if (holders.drops != nullptr) Join(clock, *holders.drops);
  } else {
    if (holders.drops == nullptr) holders.drops = NewClock();
    Join(*holders.drops, clock);
    Release(thread);
  }
}

void Sharing::Look(int thread, const void* count, const void* place) {
  const OutsideHeap mine;
  Holders& holders = holders_[count];
  if (!IsShared(place) && holders.drops != nullptr &&
      !Covers(of(thread), *holders.drops)) {
    Learn(place);
  }
  if (holders.looks == nullptr) holders.looks = NewClock();
  Join(*holders.looks, of(thread));
  Release(thread);
}

}  // namespace weir::sim
