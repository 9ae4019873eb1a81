// A bounded set of lanes for one device and priority. A lane is a stream with
// its fixtures; it has one owner at a time and changes owner only when idle.
// Thread-safe. Most recently used first (LIFO), which keeps hot lanes hot; to
// acquire an idle lane while nobody waits, and to return it, takes no lock.
//
//   created = idle + leased + draining + retired <= max
//
// draining: returned or being checked, not yet seen idle; retired: over the
// limit or failed, being destroyed. destroyed_total counts the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/lane.h"

namespace weir {

class Device;
class StreamPool;

// Returns its lane by itself. Move-only. May be dropped on any thread, also
// inside StreamTask::Complete and with work unfinished (the lane then drains).
class WEIR_EXPORT StreamLease {
 public:
  StreamLease() = default;
  StreamLease(StreamLease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        lane_(std::exchange(other.lane_, nullptr)) {}
  StreamLease& operator=(StreamLease&& other) noexcept;
  ~StreamLease() { Reset(); }

  Lane* lane() const { return lane_; }
  Stream& stream() const { return lane_->stream(); }
  explicit operator bool() const { return lane_ != nullptr; }

  // The lane is checked before it is handed out again (after a failed work).
  void MarkSuspect();
  void Reset();

 private:
  friend class StreamPool;
  StreamLease(StreamPool* pool, Lane* lane) : pool_(pool), lane_(lane) {}
  StreamPool* pool_ = nullptr;
  Lane* lane_ = nullptr;
};

struct StreamPoolOptions {
  int priority = 0;
  size_t reserved = 1;        // made up front and never trimmed
  size_t max = 16;            // >= 1
  size_t max_waiters = 1024;  // more are refused
  absl::Duration idle_ttl = absl::Seconds(60);
  size_t max_arena_bytes = SIZE_MAX;  // of all lanes
  // What errors call these bounds.
  const char* max_name = "max";
  const char* max_waiters_name = "max_waiters";
  const char* max_arena_bytes_name = "max_arena_bytes";
};

struct StreamPoolThreads {
  // Where lanes are made for those who wait, and examined after a failure:
  // while all are there or being made, nothing stands before that. And where
  // lanes that are not well are given back, and what stayed idle. All of it may
  // wait for the device. Each runs what it is given, not at once; the first is
  // there as long as the pool, the second until it has stopped. Null: the
  // threads of whoever acquires or returns a lane; those, and the timers'.
  std::function<void(absl::AnyInvocable<void()>)> run_making;
  std::function<void(absl::AnyInvocable<void()>)> run_slow;
};

struct StreamPoolStats {
  size_t idle = 0, leased = 0, draining = 0, retired = 0, max = 0, waiting = 0;
  uint64_t created_total = 0, destroyed_total = 0, leases_total = 0;
  uint64_t waited_total = 0, refused_total = 0, expired_total = 0;
  size_t arena_bytes = 0;  // device memory of all lanes
  size_t created() const { return idle + leased + draining + retired; }
};

class WEIR_EXPORT StreamPool {
 public:
  using LeaseCallback = absl::AnyInvocable<void(absl::StatusOr<StreamLease>)>;

  // `device` and `timers` outlive the pool.
  static absl::StatusOr<std::unique_ptr<StreamPool>> Create(
      Device* device, TimerQueue* timers, const StreamPoolOptions& options,
      StreamPoolThreads threads = {});

  // REQUIRES: no lease and no waiter is left. Waits for draining lanes.
  ~StreamPool();

  // For tests: a lane now, made here if need be, or RESOURCE_EXHAUSTED (reason
  // STREAM_POOL_EXHAUSTED, metadata with the pool's statistics, retry hint).
  absl::StatusOr<StreamLease> TryAcquire();

  // For threads that may not wait: an idle lane, or an empty lease. It costs
  // whoever is going to wait nothing.
  absl::StatusOr<StreamLease> AcquireNow();

  // First come, first served. `callback` runs exactly once: inline when a lane
  // is free, else on the thread that returns or makes one, with the error of
  // that where it could not be made; with DEADLINE_EXCEEDED at
  // `deadline`, RESOURCE_EXHAUSTED beyond max_waiters, UNAVAILABLE on a
  // poisoned device, CANCELLED by Stop and CancelWait. Returns the wait's
  // number, or 0 if there was nothing to wait for.
  uint64_t Acquire(Nanos deadline, LeaseCallback callback);

  // Ends that wait, so that it takes no waiter's place any more: its callback
  // runs here with CANCELLED. Nothing happens if it is over.
  void CancelWait(uint64_t wait);

  // Destroys idle lanes beyond `keep`. Returns how many went.
  size_t Trim(size_t keep);

  // Refuses further leases, cancels the waiters and waits for the leases out.
  void Stop();

  StreamPoolStats stats() const;
  Device& device() const;

 private:
  friend class StreamLease;
  class State;

  explicit StreamPool(std::shared_ptr<State> state)
      : state_(std::move(state)) {}

  // Shared with timers and with continuations on the lanes' timelines.
  const std::shared_ptr<State> state_;
};

}  // namespace weir
