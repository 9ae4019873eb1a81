// What a StreamPool is made of: stream_pool.cc leases lanes out and takes them
// back, stream_pool_upkeep.cc makes them and lets them go. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/health.h"
#include "kernels/device/lane.h"
#include "kernels/device/lane_table.h"
#include "kernels/device/stream_pool.h"

namespace weir {

// A lane that is not idle belongs to its lease, or to the thread or
// continuation that has it draining, examined or retired.
//
// Leases and idle lanes are counted by the table, what else there is under mu_:
// so a lane that leaves or joins those is counted in both under mu_.
//
// Who acquires or returns a lane without the lock looks at `attention_` after
// it has: whoever sets that (to wait, or to stop) looks at the table after it
// in turn. All of these are sequentially consistent, so one at least sees what
// the other did, and then does under mu_ what there is to do.
class StreamPool::State : public std::enable_shared_from_this<State> {
 public:
  State(Device* device, TimerQueue* timers, const StreamPoolOptions& options,
        StreamPoolThreads threads)
      : device_(device),
        timers_(timers),
        options_(options),
        threads_(std::move(threads)),
        idle_ttl_(absl::ToInt64Nanoseconds(options.idle_ttl)),
        lanes_(options.max) {
    arenas_.max = options.max_arena_bytes;
    arenas_.max_name = options.max_arena_bytes_name;
    arenas_.drop_idle = [this] { return DropIdleArena(kNoDeadline); };
  }

  Device& device() const { return *device_; }

  absl::Status Prepare();
  void FailWaitersWhenPoisoned();
  absl::StatusOr<StreamLease> TryAcquire();
  absl::StatusOr<StreamLease> AcquireNow();
  uint64_t Acquire(Nanos deadline, LeaseCallback callback);
  void CancelWait(uint64_t wait);
  void Return(Lane* lane);
  size_t Trim(size_t keep);
  void Stop();
  void Close();
  StreamPoolStats stats() const;

  StreamPool* pool = nullptr;  // set once, before the first lease

 private:
  struct Waiter {
    LeaseCallback callback;
    Nanos deadline;
    TimerQueue::TimerId timer;
  };
  using Lanes = LaneTable::Lanes;

  // Without the lock: an idle lane as a lease, if nothing is wrong and nobody
  // waits.
  std::optional<StreamLease> LeaseQuickly();
  // The same of a lane that nothing runs on: false if that is not to be.
  bool ReturnQuickly(Lane* lane);
  bool trims() const { return idle_ttl_ < kNoDeadline / 2; }  // ever
  // Whether an idle lane is seen when its time has come.
  bool TrimIsArmedFor(bool has_arena) const;

  absl::StatusOr<std::unique_ptr<Lane>> CreateLane();
  // Gives it its place; counts it as created, but nothing else.
  Lane* Keep(std::unique_ptr<Lane> lane) WEIR_REQUIRES(mu_);
  // Makes the lane that the caller has counted in creating_, here.
  absl::StatusOr<StreamLease> CreateLeased();
  // Whether one may be made for one who waits, or comes to wait, beside those
  // that are being made.
  bool MayCreateFor(size_t waiters) const WEIR_REQUIRES(mu_) {
    return creating_ < waiters && MayCreate();
  }
  void CreateForWaiters();  // the same, by run_making, for those who wait
  absl::Status Refused() const;
  absl::Status Unusable() const WEIR_REQUIRES(mu_);
  size_t created() const WEIR_REQUIRES(mu_) {
    return static_cast<size_t>(created_total_ - destroyed_total_);
  }
  bool MayCreate() const WEIR_REQUIRES(mu_) {
    return created() + creating_ < options_.max;
  }
  StreamLease LeaseOut(Lane* lane);  // one that is counted as leased
  std::optional<StreamLease> TakeIdle();
  size_t Removable() const WEIR_REQUIRES(mu_);
  void SetRemovable() WEIR_REQUIRES(mu_) { removable_.store(Removable() > 0); }
  // Counts the oldest idle lanes as retired, as many as are removable, at most
  // `most`, and idle since `since` or longer.
  Lanes Retire(size_t most, Nanos since) WEIR_REQUIRES(mu_);
  // Frees one arena, of a lane that has been idle since `since` or longer, if
  // there is one.
  bool DropIdleArena(Nanos since);
  void ArmTrimTimer() WEIR_REQUIRES(mu_);
  void TrimExpired();
  void TakeBack(Lane* lane, bool leased);
  void Examine(Lane* lane);
  // One that is counted as idle.
  void PutBack(Lane* lane) WEIR_REQUIRES(mu_);
  bool Usable(Lane& lane);
  LeaseCallback TakeFirstWaiter() WEIR_REQUIRES(mu_);
  // After every change of those who wait, and of stopping_.
  void SetAttention() WEIR_REQUIRES(mu_) {
    attention_.store(stopping_ || !waiters_.empty());
  }
  void Expire(uint64_t waiter);
  void Serve();
  // REQUIRES: they are counted as retired.
  void Destroy(const Lanes& lanes);
  void FailWaiters(const absl::Status& status);

  Device* const device_;
  TimerQueue* const timers_;
  const StreamPoolOptions options_;
  const StreamPoolThreads threads_;
  const Nanos idle_ttl_;

  LaneArenas arenas_;
  LaneTable lanes_;
  Atomic<bool> attention_{false};
  Atomic<bool> trim_armed_{false};
  Atomic<bool> removable_{false};  // Removable() > 0
  Atomic<uint64_t> leases_total_{0};

  alignas(64) mutable Mutex mu_;
  CondVar changed_;
  size_t draining_ WEIR_GUARDED_BY(mu_) = 0;
  size_t retired_ WEIR_GUARDED_BY(mu_) = 0;
  size_t creating_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t created_total_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t destroyed_total_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t waited_total_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t refused_total_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t expired_total_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t next_lane_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t next_waiter_ WEIR_GUARDED_BY(mu_) = 0;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  TimerQueue::TimerId trim_timer_ WEIR_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Waiter> waiters_ WEIR_GUARDED_BY(mu_);  // in arrival order

  DeviceHealth::Watch lost_;  // set before the first lease
};

}  // namespace weir
