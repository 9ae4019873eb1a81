// The lane of one context: held while it has unfinished work there, or the next
// one is about to be launched, and not longer. It knows how much is on the lane
// and when it takes no more. Thread-safe.
#pragma once

#include <cstddef>

#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/stream_pool.h"

namespace weir {

class WEIR_EXPORT LaneHold {
 public:
  // Launches on the lane that are not done stay below `max_launches`, unless
  // one work alone has more.
  explicit LaneHold(size_t max_launches) : max_launches_(max_launches) {}

  // For the next launch, until Begin or Unclaim. False if there is no lane:
  // then one that was acquired is given. One launch at a time claims.
  bool Claim();
  void Give(StreamLease lease);
  // REQUIRES: claimed.
  Lane* lane() const;

  // The claimed launch begins, with so many launches of the driver's. False if
  // the lane has no room; it stays claimed, and some End says has_room.
  bool Begin(size_t launches);

  struct Ended {
    StreamLease lease;      // to be dropped where no lock is held
    bool has_room = false;  // again, where it had none
  };
  // What began is done. `suspect`: the lane is to be checked.
  Ended End(size_t launches, bool suspect);
  // What was to be launched is not.
  Ended Unclaim();

 private:
  Ended Settle() WEIR_REQUIRES(mu_);

  const size_t max_launches_;
  mutable Mutex mu_;
  StreamLease lease_ WEIR_GUARDED_BY(mu_);
  bool claimed_ WEIR_GUARDED_BY(mu_) = false;
  bool full_ WEIR_GUARDED_BY(mu_) = false;
  size_t works_ WEIR_GUARDED_BY(mu_) = 0;     // that began and are not done
  size_t launches_ WEIR_GUARDED_BY(mu_) = 0;  // of those
};

}  // namespace weir
