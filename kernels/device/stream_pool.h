// A bounded set of lanes for one device and priority. A lane is a stream with
// its fixtures; it has one owner at a time and changes owner only when idle.
// Thread-safe. Most recently used first (LIFO), which keeps hot lanes hot.
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
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "kernels/device/memory.h"
#include "kernels/device/stream.h"

namespace weir {

class Device;
class StreamPool;

// What the arenas of a pool's lanes hold together, and what to do when that is
// too much. Thread-safe once made.
struct LaneArenas {
  Atomic<size_t> bytes{0};
  size_t max = SIZE_MAX;
  // Frees the arena of a lane that nobody has: one, so that the others are
  // there for whoever comes meanwhile. False if there was none.
  std::function<bool()> drop_idle = [] { return false; };

  absl::Status Full(size_t wanted) const;
};

// A stream with its scratch arena at a fixed address. Used by its owner only.
class WEIR_EXPORT Lane {
 public:
  // `arenas` outlives the lane.
  Lane(std::unique_ptr<Stream> stream, uint64_t number, LaneArenas* arenas);
  ~Lane();

  Stream& stream() const { return *stream_; }
  uint64_t number() const { return number_; }
  // Grows with every lease: a stale lease can be told from the present one.
  uint64_t generation() const { return generation_; }

  // Scratch of at least `bytes`, aligned to 256. The address changes only when
  // it grows; a block that work may still use is kept until the lane is idle.
  // RESOURCE_EXHAUSTED, reason DEVICE_MEMORY_EXHAUSTED, where the lanes'
  // bound or the device leaves no room.
  absl::StatusOr<std::byte*> Arena(size_t bytes);
  // The same for threads that may not wait: null if more than the device's
  // quick_bytes would have to be made or freed, or another lane's be freed, or
  // there is none.
  std::byte* ArenaNow(size_t bytes);
  size_t arena_bytes() const { return arena_.size(); }  // the newest block
  // Whether Arena(bytes) makes no call of the device.
  bool HasArena(size_t bytes) const;

 private:
  friend class StreamPool;
  friend class StreamLease;

  std::unique_ptr<Stream> stream_;
  const uint64_t number_;
  uint64_t generation_ = 0;
  Nanos idle_since_ = 0;
  bool suspect_ = false;
  size_t ArenaSize(size_t bytes) const;  // of a block that has `bytes`
  // `idle`: nothing uses the blocks that there are. `drop_idle` as LaneArenas'.
  absl::Status GrowArena(size_t bytes, bool idle,
                         absl::FunctionRef<bool()> drop_idle);
  void DropArena();   // REQUIRES: idle
  void CountArena();  // its bytes and those of outgrown blocks, in the sum

  DeviceMemory arena_;
  std::vector<DeviceMemory> outgrown_;
  LaneArenas* const arenas_;
  size_t counted_bytes_ = 0;
};

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
  // Where lanes are made for those who wait; and where they are examined after
  // a failure, and lanes and arenas that stayed idle are given back. All of it
  // may wait for the device. Each runs what it is given, not at once; is there
  // until the pool has stopped. Null: the threads of whoever acquires a lane;
  // those of the timers and of whoever returns one.
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
      Device* device, TimerQueue* timers, const StreamPoolOptions& options);

  // REQUIRES: no lease and no waiter is left. Waits for draining lanes.
  ~StreamPool();

  // A lane now, made here if need be, or RESOURCE_EXHAUSTED (reason
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
