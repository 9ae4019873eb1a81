// The lane of one context: it has one while something is on it or the next
// launch is about to be, and not longer. It knows how much is on the lane and
// when that takes no more. Thread-safe.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/stream_pool.h"

namespace weir {

class LaneHold;

// The right to launch next on the lane. Let go unused, it gives the lane back
// if nothing is on it; that may run whoever waits for a lane.
class WEIR_EXPORT LaneClaim {
 public:
  LaneClaim() = default;  // none
  LaneClaim(LaneClaim&& other) noexcept
      : hold_(std::exchange(other.hold_, nullptr)),
        lane_(std::exchange(other.lane_, nullptr)) {}
  LaneClaim& operator=(LaneClaim&& other) noexcept;
  ~LaneClaim() { Reset(); }

  explicit operator bool() const { return hold_ != nullptr; }
  Lane* lane() const { return lane_; }
  void Reset();

 private:
  friend class LaneHold;
  LaneClaim(LaneHold* hold, Lane* lane) : hold_(hold), lane_(lane) {}
  LaneHold* hold_ = nullptr;
  Lane* lane_ = nullptr;
};

class WEIR_EXPORT LaneHold {
 public:
  // Launches on the lane that are not done are `max_launches` at most, unless
  // one work alone has more.
  explicit LaneHold(size_t max_launches) : max_launches_(max_launches) {}

  // One claim at a time. None if there is no lane: then one that was acquired
  // is given. The claim ends before this does.
  LaneClaim Claim();
  LaneClaim Give(StreamLease lease);

  // Whether what is launched next comes after everything on `timeline` in the
  // order of the lane's stream.
  bool IsOn(const Timeline* timeline) const;

  // The claimed launch begins, with so many launches of the driver's, and the
  // claim is used up. False if the lane has no room: the claim stays, and some
  // End says so when there is room again.
  bool Begin(LaneClaim& claim, size_t launches);

  // What began is done. `suspect`: the lane is to be checked. True if the lane
  // had no room and has some now. May run whoever waits for a lane.
  bool End(size_t launches, bool suspect);

 private:
  friend class LaneClaim;
  void Unclaim();
  StreamLease TakeUnused() WEIR_REQUIRES(mu_);

  const size_t max_launches_;
  mutable Mutex mu_;
  StreamLease lease_ WEIR_GUARDED_BY(mu_);
  bool claimed_ WEIR_GUARDED_BY(mu_) = false;
  bool full_ WEIR_GUARDED_BY(mu_) = false;    // and somebody wants to know
  size_t works_ WEIR_GUARDED_BY(mu_) = 0;     // that began and are not done
  size_t launches_ WEIR_GUARDED_BY(mu_) = 0;  // of those
};

}  // namespace weir
