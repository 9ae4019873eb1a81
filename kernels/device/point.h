// Timelines and points: the one notion of "when" in weir. A timeline is a
// 64-bit counter that only grows, or failed(status). A point is (timeline,
// value). Every stream is a timeline; callers may make others.
//
// Thread-safe. A continuation runs exactly once, inline when the outcome is
// already known, else on the thread that advances or fails the timeline; it
// must be short and may not block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"

namespace weir {

class Device;
struct Point;

// Whose timeline it is, as reports name it.
struct TimelineOwner {
  enum class Kind : uint8_t {
    kCaller = 0,  // advanced by a caller, who numbered it
    kStream = 1,  // number: Stream::id()
    kContext = 2,
  };
  Kind kind = Kind::kCaller;
  uint64_t number = 0;

  friend bool operator==(const TimelineOwner&, const TimelineOwner&) = default;
};

class WEIR_EXPORT Timeline {
 public:
  using Continuation = absl::AnyInvocable<void(absl::Status)>;
  // 0: the continuation has already run, or is about to when what backs the
  // value is launched.
  using WaitId = uint64_t;

  // `device` is null for a timeline that the host advances. The name appears
  // in errors, the owner in reports.
  explicit Timeline(std::string name, const Device* device = nullptr,
                    TimelineOwner owner = {});
  ~Timeline();  // waiters left get CANCELLED
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  const std::string& name() const { return name_; }
  const Device* device() const { return device_; }
  const TimelineOwner& owner() const { return owner_; }

  // The largest value reached.
  uint64_t value() const { return value_.load(std::memory_order_acquire); }

  // The largest value whose work was handed to the device; between value() and
  // launched() a stream of the same device can wait without the host.
  uint64_t launched() const {
    return launched_.load(std::memory_order_acquire);
  }

  // Reaches `value`. `status` is the outcome of exactly this value: a failed
  // work fails its dependants, while the timeline goes on. A value that does
  // not grow is FAILED_PRECONDITION, reason TIMELINE_NOT_INCREASING; after Fail
  // the answer is that failure.
  absl::Status Advance(uint64_t value, absl::Status status = absl::OkStatus());

  // The outcome of exactly `value` is known before the timeline gets there, and
  // is this failure: whoever depends on it is told now. Advance follows, with
  // the same status.
  void FailAhead(uint64_t value, absl::Status status);

  void SetLaunched(uint64_t value);

  // Every value not reached yet fails with `status`, now and later. The first
  // failure stays.
  void Fail(absl::Status status);

  // Empty while pending; OK or the failure once reached (a failure may be known
  // before: FailAhead). 0 was reached from the beginning. Remembered for all
  // values that are held (HeldPoint), and for those after the newest failures,
  // 1,024 with 1 MiB of text at most; for others the answer is DATA_LOSS.
  std::optional<absl::Status> Outcome(uint64_t value) const;

  // `value`, which the host advances, is going to be reached when `at` is, a
  // point of a stream, and fails if that does: whoever depends on it and runs
  // on that stream's device may wait for `at` there, without the host. Said
  // before or after `at` is launched; means nothing once `value` is reached.
  void Back(uint64_t value, const Point& at);

  // What backs `value` on `device`, if that is launched; else null, also once
  // `value` is reached.
  Point Backing(uint64_t value, const Device* device) const;

  WaitId OnReached(uint64_t value, Continuation continuation);
  // Fires when a stream of `device` can wait for the value (Point::OnDevice),
  // or it is reached or has failed; once it is backed, when that is launched or
  // has failed. Null: as OnReached.
  WaitId OnLaunched(uint64_t value, const Device* device,
                    Continuation continuation);

  // True if the continuation will never run; false if it has run, is running,
  // or waits for what backs the value to be launched.
  bool CancelWait(WaitId id);

  // `wanted` runs once: on the thread that is the first to wait for `value`, or
  // for a lesser one that nothing else with a `wanted` reaches before; at once
  // if somebody waits already. It notes and posts, whatever locks that thread
  // has. It goes without that when `value` is reached or the whole has failed.
  // For who moves the timeline only if somebody needs that.
  void OnWanted(uint64_t value, absl::AnyInvocable<void()> wanted);
  // As if somebody waited for `value`.
  void Want(uint64_t value);

  // Continuations that wait.
  size_t waits() const;
  // Single values that are known to have failed, reached or not, but for those
  // that only their holders keep.
  size_t failures() const;

 private:
  friend class HeldPoint;
  using Key = std::pair<uint64_t, WaitId>;  // value, then arrival
  struct Waiter {
    Continuation continuation;
    const Device* device = nullptr;  // for a launch
  };
  using WaiterMap = std::map<Key, Waiter>;
  struct Backed;  // a value, with a stream's point
  static constexpr uint64_t kMaxValue = ~uint64_t{0};

  // A value that somebody holds.
  struct Held {
    size_t holders = 0;
    // Since it would be forgotten otherwise.
    absl::Status failure;
  };

  void Hold(uint64_t value);
  void Release(uint64_t value);
  void NoteFailure(uint64_t value) WEIR_REQUIRES(mu_);
  void ForgetOldestFailure() WEIR_REQUIRES(mu_);
  std::optional<absl::Status> OutcomeLocked(uint64_t value) const
      WEIR_REQUIRES(mu_);
  // OK once launched, else as OutcomeLocked.
  std::optional<absl::Status> LaunchOutcomeLocked(uint64_t value) const
      WEIR_REQUIRES(mu_);
  absl::Status AdvanceFailed(uint64_t value, absl::Status status);
  absl::Status NotIncreasing(uint64_t value) const;
  absl::Status Forgotten(uint64_t value) const;
  absl::Status FailureOf(uint64_t value) const;
  void RunDueWaiters();
  using Wanted = absl::AnyInvocable<void()>;
  // Who is to be told that somebody waits for `value`; null: nobody, or he has
  // been.
  Wanted TakeWanted(uint64_t value) WEIR_REQUIRES(mu_);
  WaitId AddWaiter(uint64_t value, Waiter waiter, WaiterMap& waiters)
      WEIR_REQUIRES(mu_);
  // Moves the waiters for exactly `value` to `taken`; of those for a launch,
  // the ones for `device` alone if that is given.
  void TakeWaiters(uint64_t value, const Device* device, WaiterMap& waiters,
                   std::vector<Continuation>& taken) WEIR_REQUIRES(mu_);
  // Null if there is none on `device`.
  const Backed* FindBacking(uint64_t value, const Device* device) const
      WEIR_REQUIRES(mu_);

  const std::string name_;
  const Device* const device_;
  const TimelineOwner owner_;

  // Advance writes value_ and then reads the flags; a waiter or a failure sets
  // its flag and then reads value_. All of it is sequentially consistent, so at
  // least one side sees the other, and Advance needs no lock while the flags
  // are down; nor does who asks for a value beyond the last that failed.
  Atomic<uint64_t> value_{0};
  Atomic<uint64_t> launched_{0};
  Atomic<bool> has_waiters_{false};
  Atomic<bool> has_launch_waiters_{false};
  // No larger value has failed, by itself or with the whole.
  Atomic<uint64_t> last_failure_{0};
  Atomic<bool> closed_{false};  // the whole failed

  mutable Mutex mu_;
  WaitId next_wait_ WEIR_GUARDED_BY(mu_) = 1;
  WaiterMap reach_waiters_ WEIR_GUARDED_BY(mu_);
  WaiterMap launch_waiters_ WEIR_GUARDED_BY(mu_);
  std::unordered_map<WaitId, uint64_t> wait_keys_ WEIR_GUARDED_BY(mu_);
  // By value, until that is reached; null once told.
  std::multimap<uint64_t, Wanted> wanted_ WEIR_GUARDED_BY(mu_);
  std::vector<Backed> backed_ WEIR_GUARDED_BY(mu_);  // by value
  std::map<uint64_t, absl::Status> failed_values_ WEIR_GUARDED_BY(mu_);
  size_t failed_bytes_ WEIR_GUARDED_BY(mu_) = 0;  // of their texts
  std::map<uint64_t, absl::Status> failed_ahead_ WEIR_GUARDED_BY(mu_);
  uint64_t forgotten_failure_ WEIR_GUARDED_BY(mu_) = 0;  // the newest of them
  std::map<uint64_t, Held> held_ WEIR_GUARDED_BY(mu_);
  uint64_t failed_after_ WEIR_GUARDED_BY(mu_) =
      kMaxValue;  // larger ones failed
  absl::Status failure_ WEIR_GUARDED_BY(mu_);
};

// A copyable reference to a moment. The default-constructed point ("null") was
// reached before anything else.
struct WEIR_EXPORT Point {
  std::shared_ptr<Timeline> timeline;
  uint64_t value = 0;

  bool is_null() const { return timeline == nullptr; }
  std::optional<absl::Status> Outcome() const {
    if (is_null()) return absl::OkStatus();
    return timeline->Outcome(value);
  }
  // What a stream of `device` can wait for in its place now, without the host:
  // the point itself if it is launched there, else what backs it. Null if there
  // is no such thing, or the point is reached.
  Point OnDevice(const Device* device) const;

  friend bool operator==(const Point&, const Point&) = default;
};

// The error of what depends on a point that failed with `status`: it names the
// point, unless that error was inherited itself.
WEIR_EXPORT absl::Status DependsOnFailed(const std::string& timeline,
                                         uint64_t value,
                                         const absl::Status& status);

struct Timeline::Backed {
  uint64_t value = 0;
  Point at;
};

// A point whose outcome is remembered while it is held, however many others
// fail meanwhile. For whoever keeps a point beyond the moment when it is
// reached; costs a lock and an entry in its timeline.
class WEIR_EXPORT HeldPoint {
 public:
  HeldPoint() = default;
  explicit HeldPoint(Point point);
  HeldPoint(HeldPoint&& other) noexcept
      : point_(std::exchange(other.point_, {})) {}
  HeldPoint& operator=(HeldPoint&& other) noexcept {
    std::swap(point_, other.point_);
    return *this;
  }
  ~HeldPoint();

  const Point& operator*() const { return point_; }
  const Point* operator->() const { return &point_; }

 private:
  Point point_;
};

}  // namespace weir
