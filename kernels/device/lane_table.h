// The lanes of a pool, each in a place of its own, and a list of those that
// nobody has, the newest first: whoever takes a lane out of there has it.
// Thread-safe; nothing here takes a lock.
//
// How many are leased and idle is one word, so that both change at once. A lane
// counts as idle before it is in the list, and until after it was taken out: so
// there are never more in it than are counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/number_stack.h"
#include "kernels/device/lane.h"

namespace weir {

class LaneTable {
 public:
  // Oldest first, by the time since which they are idle.
  using Lanes = std::vector<Lane*>;
  struct Count {
    uint32_t leased = 0;
    uint32_t idle = 0;
  };

  explicit LaneTable(size_t max);

  // Gives a new lane its place, and counts it nowhere. REQUIRES: there are
  // fewer than `max`.
  Lane* Add(std::unique_ptr<Lane> lane);
  // Ends it, which may take long. REQUIRES: the caller has it.
  void Remove(Lane* lane);

  Count count() const;
  // More (or, if negative, fewer) that are leased, and idle.
  void Change(int leased, int idle);

  // The newest idle one, which counts as leased then; null if there is none.
  Lane* TakeIdle();
  // From here on it is anybody's. REQUIRES: the caller has it, and has counted
  // it as idle.
  void PutIdle(Lane* lane);

  // All that are in the list, which still count as idle: the caller has them
  // for a moment, and puts back those that it does not count out.
  Lanes TakeAllIdle();
  void PutAllIdle(const Lanes& lanes);

 private:
  auto LinkOf() {
    return [this](uint32_t place) -> auto& { return links_[place]; };
  }

  // Written by whoever makes or ends a lane, read by who has it.
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<NumberStack::Link> links_;
  NumberStack free_;  // places without a lane
  alignas(64) NumberStack idle_;
  Atomic<uint64_t> count_{0};  // leased above idle
};

}  // namespace weir
