#include "kernels/device/lane_table.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace weir {

LaneTable::LaneTable(size_t max) : lanes_(max), links_(max) {
  for (size_t i = max; i-- > 0;) free_.Push(static_cast<uint32_t>(i), LinkOf());
}

Lane* LaneTable::Add(std::unique_ptr<Lane> lane) {
  const uint32_t place = free_.Pop(LinkOf()).value();
  lane->place_ = place;
  lanes_[place] = std::move(lane);
  return lanes_[place].get();
}

void LaneTable::Remove(Lane* lane) {
  const uint32_t place = lane->place_;
  lanes_[place].reset();
  free_.Push(place, LinkOf());
}

LaneTable::Count LaneTable::count() const {
  const uint64_t word = count_.load();
  return {static_cast<uint32_t>(word >> 32), static_cast<uint32_t>(word)};
}

// Unsigned arithmetic wraps, and so a decrease is an addition too.
void LaneTable::Change(int leased, int idle) {
  count_.fetch_add((static_cast<uint64_t>(leased) << 32) +
                   static_cast<uint64_t>(idle));
}

Lane* LaneTable::TakeIdle() {
  const std::optional<uint32_t> place = idle_.Pop(LinkOf());
  if (!place.has_value()) return nullptr;
  Change(/*leased=*/1, /*idle=*/-1);
  return lanes_[*place].get();
}

void LaneTable::PutIdle(Lane* lane) {
  lane->idle_since_ = NowNanos();
  idle_.Push(lane->place_, LinkOf());
}

LaneTable::Lanes LaneTable::TakeAllIdle() {
  Lanes lanes;
  for (const uint32_t place : idle_.TakeAll(LinkOf())) {
    lanes.push_back(lanes_[place].get());
  }
  // One that was returned while others were out lies below them.
  std::reverse(lanes.begin(), lanes.end());
  std::stable_sort(lanes.begin(), lanes.end(),
                   [](const Lane* one, const Lane* other) {
                     return one->idle_since_ < other->idle_since_;
                   });
  return lanes;
}

void LaneTable::PutAllIdle(const Lanes& lanes) {
  for (const Lane* lane : lanes) idle_.Push(lane->place_, LinkOf());
}

}  // namespace weir
