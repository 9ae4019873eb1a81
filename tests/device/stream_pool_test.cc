#include "kernels/device/stream_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/device/test_task.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr Nanos kHour = Nanos{3600} * 1'000'000'000;

void CheckEquation(const StreamPoolStats& stats) {
  EXPECT_EQ(stats.created(), stats.created_total - stats.destroyed_total);
  EXPECT_LE(stats.created(), stats.max);
}

// For another thread to do what it must not: one that is right cannot.
void GiveOthersTime() {
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
}

class StreamPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<StreamPool> Make(size_t reserved, size_t max) {
    StreamPoolOptions options;
    options.reserved = reserved;
    options.max = max;
    return Make(options);
  }
  std::unique_ptr<StreamPool> Make(const StreamPoolOptions& options,
                                   StreamPoolThreads threads = {}) {
    auto pool =
        StreamPool::Create(&device_, &timers_, options, std::move(threads));
    EXPECT_TRUE(pool.ok()) << pool.status();
    return *std::move(pool);
  }

  // What a callback was given.
  struct Grant {
    std::optional<absl::StatusOr<StreamLease>> result;
    Event arrived;

    StreamPool::LeaseCallback callback() {
      return [this](absl::StatusOr<StreamLease> lease) {
        EXPECT_FALSE(result.has_value()) << "called twice";
        result = std::move(lease);
        arrived.Set();
      };
    }
    absl::StatusCode code() const { return result->status().code(); }
  };

  FaultInjectingDevice device_{
      MakeCpuDevice({.cpu_threads = 2, .cache_dir = {}})};
  TimerQueue timers_;
};

TEST_F(StreamPoolTest, RefusesOptionsThatMakeNoSense) {
  for (const auto& [reserved, max] :
       std::vector<std::pair<size_t, size_t>>{{0, 0}, {2, 1}}) {
    StreamPoolOptions options;
    options.reserved = reserved;
    options.max = max;
    EXPECT_EQ(StreamPool::Create(&device_, &timers_, options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(StreamPoolTest, ReservedLanesAreMadeUpFront) {
  auto pool = Make(2, 4);
  EXPECT_EQ(pool->stats().idle, 2u);
  EXPECT_EQ(pool->stats().created_total, 2u);
  EXPECT_EQ(device_.calls(DeviceCall::kCreateStream), 2u);
}

TEST_F(StreamPoolTest, CreationFailsIfAReservedLaneCannotBeMade) {
  device_.Fail(DeviceCall::kCreateStream, absl::InternalError("no"), 2);
  StreamPoolOptions options;
  options.reserved = 3;
  EXPECT_EQ(StreamPool::Create(&device_, &timers_, options).status(),
            absl::InternalError("no"));
}

TEST_F(StreamPoolTest, TheMostRecentlyUsedLaneComesFirst) {
  auto pool = Make(3, 3);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  auto c = *pool->TryAcquire();
  const uint64_t first = a.lane()->number();
  const uint64_t second = b.lane()->number();
  b.Reset();
  a.Reset();
  auto again = *pool->TryAcquire();
  EXPECT_EQ(again.lane()->number(), first);
  EXPECT_EQ(again.lane()->generation(), 2u);
  EXPECT_EQ((*pool->TryAcquire()).lane()->number(), second);
}

TEST_F(StreamPoolTest, GrowsToTheMaximumAndThenRefuses) {
  StreamPoolOptions options;
  options.reserved = 0;
  options.max = 2;
  options.max_name = "lanes there may be";
  options.max_waiters_name = "those who wait";
  auto pool = Make(options);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  EXPECT_NE(a.lane(), b.lane());
  const absl::StatusOr<StreamLease> none = pool->AcquireNow();
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  EXPECT_EQ(pool->stats().refused_total, 0u);
  const absl::Status refused = pool->TryAcquire().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(refused), "STREAM_POOL_EXHAUSTED");
  EXPECT_EQ(refused.message(),
            "all 2 streams are in use (lanes there may be); 0 works wait for "
            "one (those who wait)");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_FALSE(Metadata(refused).empty());
  EXPECT_EQ(pool->stats().refused_total, 1u);
  CheckEquation(pool->stats());
}

TEST_F(StreamPoolTest, AMovedLeaseIsOneLease) {
  auto pool = Make(1, 1);
  auto a = *pool->TryAcquire();
  StreamLease b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(pool->stats().leased, 1u);
  b = StreamLease();
  EXPECT_EQ(pool->stats().idle, 1u);
  b.Reset();
  EXPECT_EQ(pool->stats().leases_total, 1u);
}

TEST_F(StreamPoolTest, WaitersAreServedInTheirOrder) {
  auto pool = Make(1, 1);
  auto held = *pool->TryAcquire();
  std::vector<int> order;
  std::vector<StreamLease> leases;
  for (int i = 0; i < 3; ++i) {
    pool->Acquire(kNoDeadline, [&, i](absl::StatusOr<StreamLease> lease) {
      ASSERT_TRUE(lease.ok());
      order.push_back(i);
      leases.push_back(*std::move(lease));
    });
  }
  EXPECT_EQ(pool->stats().waiting, 3u);
  EXPECT_FALSE(pool->TryAcquire().ok());  // overtakes nobody
  held.Reset();
  EXPECT_THAT(order, ElementsAre(0));
  leases[0].Reset();
  EXPECT_THAT(order, ElementsAre(0, 1));
  leases[1].Reset();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  EXPECT_EQ(pool->stats().waited_total, 3u);
}

TEST_F(StreamPoolTest, ALongQueueOfQuickOwnersKeepsTheStackFlat) {
  StreamPoolOptions options;
  options.max = 1;
  options.max_waiters = 200000;
  auto pool = Make(options);
  auto held = *pool->TryAcquire();
  int served = 0;
  for (int i = 0; i < 200000; ++i) {
    pool->Acquire(kNoDeadline,
                  [&served](absl::StatusOr<StreamLease>) { ++served; });
  }
  held.Reset();
  EXPECT_EQ(served, 200000);
}

TEST_F(StreamPoolTest, AWaiterExpiresAtItsDeadline) {
  auto pool = Make(1, 1);
  auto held = *pool->TryAcquire();
  Grant soon, later;
  pool->Acquire(NowNanos(), soon.callback());
  pool->Acquire(NowNanos() + kHour, later.callback());
  soon.arrived.Wait();
  EXPECT_EQ(soon.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pool->stats().expired_total, 1u);
  held.Reset();
  later.arrived.Wait();
  EXPECT_TRUE(later.result->ok());
}

// The timers' thread may have other things to do.
TEST_F(StreamPoolTest, NoLaneGoesToAWaiterWhoseTimeHasPassed) {
  auto pool = Make(1, 1);
  auto held = *pool->TryAcquire();
  Event busy, go_on, over;
  timers_.Add(NowNanos(), [&] {
    busy.Set();
    go_on.Wait();
    over.Set();
  });
  busy.Wait();
  Grant next, late;
  pool->Acquire(NowNanos(), late.callback());
  pool->Acquire(kNoDeadline, next.callback());
  held.Reset();
  const bool told = late.result.has_value();
  go_on.Set();
  over.Wait();
  ASSERT_TRUE(told);
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(pool->stats().expired_total, 1u);
  ASSERT_TRUE(next.result.has_value());
  EXPECT_TRUE(next.result->ok());
}

TEST_F(StreamPoolTest, ACancelledWaitGivesItsPlaceToOthers) {
  StreamPoolOptions options;
  options.max = 1;
  options.max_waiters = 1;
  auto pool = Make(options);
  Grant at_once, cancelled, next;
  EXPECT_EQ(pool->Acquire(kNoDeadline, at_once.callback()), 0u);
  ASSERT_TRUE(at_once.result->ok());
  const uint64_t wait = pool->Acquire(kNoDeadline, cancelled.callback());
  EXPECT_NE(wait, 0u);
  pool->CancelWait(wait);
  EXPECT_EQ(cancelled.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pool->stats().waiting, 0u);
  pool->CancelWait(wait);  // over already
  pool->CancelWait(0);
  EXPECT_NE(pool->Acquire(kNoDeadline, next.callback()), 0u);
  (*at_once.result)->Reset();
  EXPECT_TRUE(next.result->ok());
}

TEST_F(StreamPoolTest, TooManyWaitersAreRefused) {
  StreamPoolOptions options;
  options.max = 1;
  options.max_waiters = 1;
  auto pool = Make(options);
  auto held = *pool->TryAcquire();
  Grant waiting, refused;
  pool->Acquire(kNoDeadline, waiting.callback());
  pool->Acquire(kNoDeadline, refused.callback());
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(waiting.result.has_value());
  held.Reset();
  EXPECT_TRUE(waiting.result->ok());
}

TEST_F(StreamPoolTest, AReturnedLaneWithWorkDrainsBeforeTheNextOwner) {
  auto pool = Make(1, 1);
  auto& hold = device_.HoldCall(DeviceCall::kLaunch);
  TestTask task;
  auto lease = *pool->TryAcquire();
  Stream* const stream = &lease.stream();
  stream->Enqueue(&task);
  hold.WaitUntilHeld();
  lease.Reset();
  EXPECT_EQ(pool->stats().draining, 1u);
  EXPECT_EQ(pool->stats().idle, 0u);
  CheckEquation(pool->stats());
  EXPECT_FALSE(pool->TryAcquire().ok());
  Grant next;
  bool idle = false;
  pool->Acquire(kNoDeadline, [&](absl::StatusOr<StreamLease> given) {
    idle = given.ok() && given->stream().idle();
    next.callback()(std::move(given));
  });
  EXPECT_FALSE(next.result.has_value());
  hold.Release();
  next.arrived.Wait();
  EXPECT_TRUE(idle);
  EXPECT_EQ(&(*next.result)->stream(), stream);
  task.Wait();
  CheckEquation(pool->stats());
}

TEST_F(StreamPoolTest, TheLeaseMayBeDroppedInComplete) {
  auto pool = Make(1, 1);
  StreamLease lease = *pool->TryAcquire();
  TestTask task(nullptr, [&](const Completion&) { lease.Reset(); });
  lease.stream().Enqueue(&task);
  task.Wait();
  EXPECT_EQ(pool->stats().idle, 1u);
}

TEST_F(StreamPoolTest, ASuspectLaneIsCheckedAndKeptIfItIsWell) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  lease.MarkSuspect();
  lease.Reset();
  EXPECT_EQ(device_.calls(DeviceCall::kCheck), 1u);
  EXPECT_EQ(pool->stats().idle, 1u);
  (*pool->TryAcquire()).Reset();  // no longer suspect
  EXPECT_EQ(device_.calls(DeviceCall::kCheck), 1u);
}

TEST_F(StreamPoolTest, ASuspectLaneThatIsIllIsDestroyedAndReplaced) {
  auto pool = Make(1, 1);
  device_.Fail(DeviceCall::kCheck, absl::InternalError("ill"));
  auto lease = *pool->TryAcquire();
  const uint64_t number = lease.lane()->number();
  Grant next;
  pool->Acquire(kNoDeadline, next.callback());
  lease.MarkSuspect();
  lease.Reset();
  ASSERT_TRUE(next.result.has_value());
  ASSERT_TRUE(next.result->ok());
  EXPECT_NE((*next.result)->lane()->number(), number);
  EXPECT_EQ(pool->stats().destroyed_total, 1u);
  CheckEquation(pool->stats());
}

TEST_F(StreamPoolTest, AFailedCreationLeavesNothingBehind) {
  auto pool = Make(0, 1);
  device_.Fail(DeviceCall::kCreateStream, absl::ResourceExhaustedError("oom"),
               1, 2);
  EXPECT_EQ(pool->TryAcquire().status(), absl::ResourceExhaustedError("oom"));
  Grant failed, good;
  pool->Acquire(kNoDeadline, failed.callback());
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->stats().created(), 0u);
  EXPECT_EQ(pool->stats().created_total, 0u);
  pool->Acquire(kNoDeadline, good.callback());
  EXPECT_TRUE(good.result->ok());
  EXPECT_NE((*good.result)->lane(), nullptr);
}

TEST_F(StreamPoolTest, WaitersBehindAFailedCreationAreServed) {
  auto pool = Make(0, 1);
  auto& hold = device_.HoldCall(DeviceCall::kCreateStream);
  device_.Fail(DeviceCall::kCreateStream, absl::InternalError("no"));
  Grant first, second;
  std::thread creator([&] { pool->Acquire(kNoDeadline, first.callback()); });
  hold.WaitUntilHeld();
  EXPECT_EQ(pool->stats().created(), 0u);
  pool->Acquire(kNoDeadline, second.callback());  // no room to create
  EXPECT_FALSE(second.result.has_value());
  hold.Release();
  creator.join();
  EXPECT_EQ(first.code(), absl::StatusCode::kInternal);
  ASSERT_TRUE(second.result.has_value());
  EXPECT_TRUE(second.result->ok());
}

// What a pool wants done where it may take long, until somebody does it.
class SlowTasks {
 public:
  using Run = std::function<void(absl::AnyInvocable<void()>)>;

  Run run() {
    return [this](absl::AnyInvocable<void()> task) {
      MutexLock lock(&mu_);
      tasks_.push_back(std::move(task));
      posted_.NotifyOne();
    };
  }
  size_t waiting() const {
    MutexLock lock(&mu_);
    return tasks_.size();
  }
  void WaitForFirst() {
    MutexLock lock(&mu_);
    AwaitFirst();
  }
  // The first, once there is one.
  void RunFirst() {
    absl::AnyInvocable<void()> task;
    {
      MutexLock lock(&mu_);
      AwaitFirst();
      task = std::move(tasks_.front());
      tasks_.erase(tasks_.begin());
    }
    task();
  }

 private:
  void AwaitFirst() WEIR_REQUIRES(mu_) {
    while (tasks_.empty()) posted_.Wait(&mu_);
  }

  mutable Mutex mu_;
  CondVar posted_;
  std::vector<absl::AnyInvocable<void()>> tasks_ WEIR_GUARDED_BY(mu_);
};

TEST_F(StreamPoolTest, LanesAreMadeWhereItMayTakeLong) {
  SlowTasks slow;
  StreamPoolOptions options;
  options.reserved = 0;
  options.max = 2;
  options.max_waiters = 1;
  auto pool = Make(options, {.run_making = slow.run(), .run_slow = nullptr});
  const absl::StatusOr<StreamLease> none = pool->AcquireNow();
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(*none);
  Grant first, second, third, refused;
  EXPECT_NE(pool->Acquire(kNoDeadline, first.callback()), 0u);
  EXPECT_NE(pool->Acquire(kNoDeadline, second.callback()), 0u);
  EXPECT_EQ(slow.waiting(), 2u);
  // One more than lanes may wait.
  EXPECT_NE(pool->Acquire(kNoDeadline, third.callback()), 0u);
  EXPECT_EQ(slow.waiting(), 2u);
  EXPECT_EQ(pool->Acquire(kNoDeadline, refused.callback()), 0u);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_.calls(DeviceCall::kCreateStream), 0u);
  slow.RunFirst();
  slow.RunFirst();
  ASSERT_TRUE(first.result.has_value() && second.result.has_value());
  ASSERT_TRUE(first.result->ok() && second.result->ok());
  EXPECT_FALSE(third.result.has_value());
  (*second.result)->Reset();
  ASSERT_TRUE(third.result.has_value());
  EXPECT_TRUE(third.result->ok());
  EXPECT_EQ(slow.waiting(), 0u);
  CheckEquation(pool->stats());
}

TEST_F(StreamPoolTest, ALaneThatCannotBeMadeFailsWhoWaitsLongest) {
  SlowTasks slow;
  StreamPoolOptions options;
  options.reserved = 0;
  options.max = 1;
  auto pool = Make(options, {.run_making = slow.run(), .run_slow = nullptr});
  device_.Fail(DeviceCall::kCreateStream, absl::InternalError("no"));
  Grant first, second;
  pool->Acquire(kNoDeadline, first.callback());
  pool->Acquire(kNoDeadline, second.callback());
  slow.RunFirst();
  EXPECT_EQ(first.result->status(), absl::InternalError("no"));
  slow.RunFirst();
  ASSERT_TRUE(second.result.has_value());
  EXPECT_TRUE(second.result->ok());
  CheckEquation(pool->stats());
}

TEST_F(StreamPoolTest, ALaneThatIsGivenUpIsMadeForTheNext) {
  SlowTasks slow;
  StreamPoolOptions options;
  options.reserved = 0;
  options.max = 1;
  auto pool = Make(options, {.run_making = slow.run(), .run_slow = nullptr});
  Grant left;
  pool->CancelWait(pool->Acquire(kNoDeadline, left.callback()));
  EXPECT_EQ(left.code(), absl::StatusCode::kCancelled);
  slow.RunFirst();
  EXPECT_EQ(pool->stats().idle, 1u);
  EXPECT_TRUE(*pool->AcquireNow());
}

// Whoever returns the last lease may be a thread that must not wait.
TEST_F(StreamPoolTest, NothingIsExaminedOnceThePoolStops) {
  SlowTasks slow;
  StreamPoolOptions options;
  options.max = 1;
  auto pool = Make(options, {.run_making = slow.run(), .run_slow = nullptr});
  auto lease = *pool->TryAcquire();
  lease.MarkSuspect();
  Grant cancelled;
  pool->Acquire(kNoDeadline, cancelled.callback());
  std::thread stopper([&] { pool->Stop(); });
  cancelled.arrived.Wait();
  lease.Reset();
  stopper.join();
  EXPECT_EQ(slow.waiting(), 0u);
  EXPECT_EQ(device_.calls(DeviceCall::kCheck), 0u);
  EXPECT_EQ(pool->stats().idle, 1u);
}

TEST_F(StreamPoolTest, IdleLanesGoAfterTheirTimeToLive) {
  StreamPoolOptions options;
  options.reserved = 1;
  options.max = 3;
  options.idle_ttl = absl::ZeroDuration();
  auto pool = Make(options);
  {
    auto a = *pool->TryAcquire();
    auto b = *pool->TryAcquire();
    auto c = *pool->TryAcquire();
  }
  EXPECT_TRUE(testing::Eventually([&] {
    const StreamPoolStats stats = pool->stats();
    return stats.idle == 1 && stats.destroyed_total == 2;  // one is reserved
  }));
}

TEST_F(StreamPoolTest, ATimerTrimsWhenNobodyComesBack) {
  StreamPoolOptions options;
  options.reserved = 0;
  options.max = 2;
  options.idle_ttl = absl::Milliseconds(1);
  Event destroyed;
  auto pool = Make(options);
  {
    auto a = *pool->TryAcquire();
    auto b = *pool->TryAcquire();
  }
  // The pool's timers lie at most 1 ms away; ours behind them runs after them.
  while (pool->stats().destroyed_total < 2) {
    Event passed;
    timers_.Add(NowNanos() + 1'000'000, [&] { passed.Set(); });
    passed.Wait();
  }
  EXPECT_EQ(pool->stats().created(), 0u);
}

TEST_F(StreamPoolTest, TrimKeepsWhatIsAskedForAndWhatIsReserved) {
  auto pool = Make(1, 4);
  {
    std::vector<StreamLease> leases;
    for (int i = 0; i < 4; ++i) leases.push_back(*pool->TryAcquire());
  }
  EXPECT_EQ(pool->Trim(3), 1u);
  EXPECT_EQ(pool->stats().idle, 3u);
  EXPECT_EQ(pool->Trim(0), 2u);
  EXPECT_EQ(pool->stats().idle, 1u);
  EXPECT_EQ(pool->stats().destroyed_total, 3u);
  CheckEquation(pool->stats());
}

// One that is being ended takes its place until then.
TEST_F(StreamPoolTest, WhoWaitsGetsALaneOnceAnotherHasGone) {
  auto pool = Make(0, 1);
  auto lease = *pool->TryAcquire();
  EXPECT_TRUE(lease.lane()->Arena(1000).ok());
  lease.Reset();
  auto& hold = device_.HoldCall(DeviceCall::kFree);
  std::thread trimmer([&] { EXPECT_EQ(pool->Trim(0), 1u); });
  hold.WaitUntilHeld();
  Grant waiting;
  const uint64_t wait = pool->Acquire(kNoDeadline, waiting.callback());
  EXPECT_FALSE(waiting.result.has_value());
  EXPECT_EQ(pool->stats().retired, 1u);
  CheckEquation(pool->stats());
  hold.Release();
  trimmer.join();
  pool->CancelWait(wait);  // it is over
  EXPECT_TRUE(waiting.result->ok()) << waiting.result->status();
  CheckEquation(pool->stats());
}

TEST_F(StreamPoolTest, APoisonedDeviceFailsWaitersAndOwners) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  Grant waiting, late;
  pool->Acquire(kNoDeadline, waiting.callback());
  device_.health().Poison(absl::InternalError("gone"));
  ASSERT_TRUE(waiting.result.has_value());
  EXPECT_EQ(Reason(waiting.result->status()), "DEVICE_POISONED");
  pool->Acquire(kNoDeadline, late.callback());
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(pool->TryAcquire().status().code(), absl::StatusCode::kUnavailable);
  lease.Reset();
  EXPECT_EQ(pool->stats().created(), 0u);
  EXPECT_EQ(pool->stats().destroyed_total, 1u);
}

TEST_F(StreamPoolTest, APoisonedDeviceLeasesNoIdleLaneOut) {
  auto pool = Make(1, 1);
  ASSERT_EQ(pool->stats().idle, 1u);
  device_.health().Poison(absl::InternalError("gone"));
  EXPECT_EQ(Reason(pool->TryAcquire().status()), "DEVICE_POISONED");
  EXPECT_EQ(Reason(pool->AcquireNow().status()), "DEVICE_POISONED");
  Grant grant;
  EXPECT_EQ(pool->Acquire(kNoDeadline, grant.callback()), 0u);
  ASSERT_TRUE(grant.result.has_value());
  EXPECT_EQ(Reason(grant.result->status()), "DEVICE_POISONED");
  EXPECT_EQ(pool->stats().leases_total, 0u);
}

TEST_F(StreamPoolTest, StopCancelsWaitersAndWaitsForLeases) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  Grant waiting;
  pool->Acquire(kNoDeadline, waiting.callback());
  std::atomic<bool> returned = false;
  bool waited = false;
  std::thread stopper([&] {
    pool->Stop();
    waited = returned;
  });
  waiting.arrived.Wait();
  EXPECT_EQ(waiting.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(pool->TryAcquire().status().code(), absl::StatusCode::kCancelled);
  GiveOthersTime();
  returned = true;
  lease.Reset();
  stopper.join();
  EXPECT_TRUE(waited);
}

TEST_F(StreamPoolTest, DestructionWaitsForDrainingLanes) {
  auto pool = Make(1, 1);
  auto& hold = device_.HoldCall(DeviceCall::kLaunch);
  TestTask task;
  {
    auto lease = *pool->TryAcquire();
    lease.stream().Enqueue(&task);
    hold.WaitUntilHeld();
  }
  Event closing;
  std::atomic<bool> released = false;
  bool waited = false;
  std::thread closer([&] {
    closing.Set();
    pool.reset();
    waited = released;
  });
  closing.Wait();
  GiveOthersTime();
  released = true;
  hold.Release();
  closer.join();
  EXPECT_TRUE(waited);
  task.Wait();
}

TEST_F(StreamPoolTest, TheArenaKeepsItsAddressUntilItGrows) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  std::byte* const first = *lease.lane()->Arena(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 256, 0u);
  EXPECT_EQ(*lease.lane()->Arena(10), first);
  EXPECT_GE(lease.lane()->arena_bytes(), 1000u);
  lease.Reset();
  auto again = *pool->TryAcquire();
  EXPECT_EQ(*again.lane()->Arena(1000), first);
  EXPECT_TRUE(again.lane()->Arena(5 << 20).ok());
  EXPECT_GE(again.lane()->arena_bytes(), size_t{5} << 20);
}

TEST_F(StreamPoolTest, AnOutgrownArenaStaysWhileWorkMayUseIt) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  std::byte* const small = *lease.lane()->Arena(1000);
  auto& hold = device_.HoldCall(DeviceCall::kLaunch);
  TestTask task([&](Stream& stream) { return stream.Fill(small, 7, 1000); });
  lease.stream().Enqueue(&task);
  hold.WaitUntilHeld();
  EXPECT_NE(*lease.lane()->Arena(1 << 20), small);
  hold.Release();
  EXPECT_TRUE(task.Wait().status.ok());
}

TEST_F(StreamPoolTest, AnArenaThatCannotGrowIsAnErrorOfItsOwner) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  device_.Fail(DeviceCall::kAllocate, absl::ResourceExhaustedError("oom"));
  const absl::Status refused = lease.lane()->Arena(1000).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(), "oom");
  EXPECT_EQ(Reason(refused), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  EXPECT_EQ(pool->stats().arena_bytes, 0u);
  EXPECT_TRUE(lease.lane()->Arena(1000).ok());
}

TEST_F(StreamPoolTest, AnArenaThatCannotGrowStaysAsItIs) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  std::byte* const small = *lease.lane()->Arena(1000);
  auto& hold = device_.HoldCall(DeviceCall::kLaunch);
  TestTask task([&](Stream& stream) { return stream.Fill(small, 7, 1000); });
  lease.stream().Enqueue(&task);
  hold.WaitUntilHeld();
  device_.Fail(DeviceCall::kAllocate, absl::ResourceExhaustedError("oom"));
  EXPECT_FALSE(lease.lane()->Arena(1 << 20).ok());
  EXPECT_EQ(*lease.lane()->Arena(1000), small);
  hold.Release();
  EXPECT_TRUE(task.Wait().status.ok());
}

TEST_F(StreamPoolTest, TheArenasOfAllLanesHaveOneBound) {
  StreamPoolOptions options;
  options.max = 3;
  options.max_arena_bytes = size_t{8} << 20;
  options.max_arena_bytes_name = "the bound";
  auto pool = Make(options);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  EXPECT_TRUE(a.lane()->Arena(4 << 20).ok());
  EXPECT_TRUE(b.lane()->Arena(4 << 20).ok());
  EXPECT_EQ(pool->stats().arena_bytes, size_t{8} << 20);
  auto c = *pool->TryAcquire();
  const absl::Status refused = c.lane()->Arena(4 << 20).status();
  EXPECT_EQ(Reason(refused), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(refused).has_value());
  const absl::Status never = c.lane()->Arena(9 << 20).status();
  EXPECT_NE(never.message().find("(the bound)"), std::string::npos) << never;
  EXPECT_EQ(Reason(never), "DEVICE_MEMORY_EXHAUSTED");
  EXPECT_FALSE(RetryAfter(never).has_value());
  EXPECT_EQ(pool->stats().arena_bytes, size_t{8} << 20);
  // What nobody uses makes room, and its lane stays.
  b.Reset();
  EXPECT_TRUE(c.lane()->Arena(4 << 20).ok());
  EXPECT_EQ(pool->stats().arena_bytes, size_t{8} << 20);
  EXPECT_EQ(pool->stats().idle, 1u);
  CheckEquation(pool->stats());
}

// For threads that may not wait.
TEST_F(StreamPoolTest, AnArenaNowIsQuickOrNone) {
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  Lane& lane = *lease.lane();
  std::byte* const small = lane.ArenaNow(1 << 20);
  ASSERT_NE(small, nullptr);
  EXPECT_EQ(lane.ArenaNow(1 << 20), small);
  EXPECT_NE(lane.ArenaNow(4 << 20), nullptr);  // instead of the small one
  EXPECT_EQ(device_.calls(DeviceCall::kFree), 1u);
  // Much to make.
  EXPECT_EQ(lane.ArenaNow(40 << 20), nullptr);
  EXPECT_EQ(device_.calls(DeviceCall::kAllocate), 2u);
  EXPECT_TRUE(lane.Arena(40 << 20).ok());
  EXPECT_EQ(lane.ArenaNow(40 << 20), *lane.Arena(40 << 20));
  EXPECT_EQ(device_.calls(DeviceCall::kFree), 2u);
}

TEST_F(StreamPoolTest, AnArenaNowTakesNoOtherLanes) {
  StreamPoolOptions options;
  options.max = 2;
  options.max_arena_bytes = size_t{8} << 20;
  auto pool = Make(options);
  auto large = *pool->TryAcquire();
  auto lease = *pool->TryAcquire();
  ASSERT_NE(large.lane()->ArenaNow(8 << 20), nullptr);
  large.Reset();
  EXPECT_EQ(lease.lane()->ArenaNow(1 << 20), nullptr);
  EXPECT_EQ(pool->stats().arena_bytes, size_t{8} << 20);
  EXPECT_TRUE(lease.lane()->Arena(1 << 20).ok());
  EXPECT_EQ(pool->stats().arena_bytes, size_t{1} << 20);
}

TEST_F(StreamPoolTest, NoArenaIsQuickWhereTheDriverMayWait) {
  device_.set_allocation_waits();
  auto pool = Make(1, 1);
  auto lease = *pool->TryAcquire();
  EXPECT_EQ(lease.lane()->ArenaNow(1), nullptr);
  std::byte* const arena = *lease.lane()->Arena(1);
  EXPECT_EQ(lease.lane()->ArenaNow(1), arena);
}

TEST_F(StreamPoolTest, ADeviceThatIsFullGetsTheArenasOfIdleLanes) {
  auto pool = Make(2, 2);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  EXPECT_TRUE(b.lane()->Arena(1 << 20).ok());
  b.Reset();
  device_.Fail(DeviceCall::kAllocate, absl::ResourceExhaustedError("oom"));
  EXPECT_TRUE(a.lane()->Arena(1 << 20).ok());
  EXPECT_EQ(pool->stats().arena_bytes, size_t{1} << 20);
}

TEST_F(StreamPoolTest, ALaneThatStaysIdleGivesItsArenaUp) {
  StreamPoolOptions options;
  options.idle_ttl = absl::Milliseconds(1);
  auto pool = Make(options);
  auto lease = *pool->TryAcquire();
  EXPECT_TRUE(lease.lane()->Arena(1 << 20).ok());
  lease.Reset();
  EXPECT_TRUE(
      testing::Eventually([&] { return pool->stats().arena_bytes == 0; }));
  EXPECT_TRUE(testing::Eventually([&] { return pool->stats().idle == 1; }));
  EXPECT_EQ(pool->stats().destroyed_total, 0u);  // it is the reserved one
}

// Most recently used first, whether a lane has an arena or not.
TEST_F(StreamPoolTest, ALaneThatGivesItsArenaUpKeepsItsPlace) {
  StreamPoolOptions options;
  options.reserved = 2;
  options.max = 2;
  options.idle_ttl = absl::Milliseconds(1);
  auto pool = Make(options);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  const uint64_t latest = b.lane()->number();
  EXPECT_TRUE(a.lane()->Arena(1 << 20).ok());
  a.Reset();
  b.Reset();
  EXPECT_TRUE(testing::Eventually([&] {
    const StreamPoolStats stats = pool->stats();
    return stats.arena_bytes == 0 && stats.idle == 2;
  }));
  auto again = *pool->TryAcquire();
  EXPECT_EQ(again.lane()->number(), latest);
}

TEST_F(StreamPoolTest, WhatStaysIdleIsGivenBackWhereThatMayTakeLong) {
  SlowTasks slow;
  StreamPoolOptions options;
  options.reserved = 1;
  options.max = 3;
  options.idle_ttl = absl::ZeroDuration();
  auto pool = Make(options, {.run_making = nullptr, .run_slow = slow.run()});
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  EXPECT_TRUE(a.lane()->Arena(1 << 20).ok());
  EXPECT_TRUE(b.lane()->Arena(1 << 20).ok());
  a.Reset();
  b.Reset();
  // Neither by who returned them nor by the timer.
  EXPECT_EQ(device_.calls(DeviceCall::kFree), 0u);
  EXPECT_EQ(pool->stats().arena_bytes, size_t{2} << 20);
  slow.RunFirst();
  EXPECT_EQ(pool->stats().arena_bytes, 0u);
  EXPECT_EQ(pool->stats().destroyed_total, 1u);
  CheckEquation(pool->stats());
}

// What is due for the lane that was idle longest is not due for the others,
// whether it goes or its arena alone.
TEST_F(StreamPoolTest, WhatIsIdleForAShorterTimeStays) {
  for (const bool lanes_go : {true, false}) {
    SCOPED_TRACE(lanes_go);
    Nanos age = 0;  // of the younger, at most
    StreamPoolStats stats;
    StreamPoolOptions options;
    options.max = 2;
    options.reserved = lanes_go ? 0 : 2;
    options.idle_ttl = absl::Milliseconds(100);
    // A machine that stands still for as long as the time to live says nothing.
    do {
      SlowTasks slow;
      auto pool =
          Make(options, {.run_making = nullptr, .run_slow = slow.run()});
      auto a = *pool->TryAcquire();
      auto b = *pool->TryAcquire();
      EXPECT_TRUE(a.lane()->Arena(1 << 20).ok());
      EXPECT_TRUE(b.lane()->Arena(2 << 20).ok());
      a.Reset();
      slow.WaitForFirst();
      const Nanos returned = NowNanos();
      b.Reset();
      slow.RunFirst();
      age = NowNanos() - returned;
      stats = pool->stats();
    } while (age >= absl::ToInt64Nanoseconds(options.idle_ttl));
    EXPECT_EQ(stats.idle, lanes_go ? 1u : 2u);
    EXPECT_EQ(stats.arena_bytes, size_t{2} << 20);
    CheckEquation(stats);
  }
}

// A device that is asked may first end what runs on it. To free what a lane had
// may take longer, and holds up no other lane that is asked about or made.
TEST_F(StreamPoolTest, ASuspectLaneIsCheckedWhereThatMayTakeLong) {
  for (const bool ill : {false, true}) {
    SlowTasks making, slow;
    StreamPoolOptions options;
    options.max = 1;
    auto pool =
        Make(options, {.run_making = making.run(), .run_slow = slow.run()});
    const uint64_t checks = device_.calls(DeviceCall::kCheck);
    if (ill) device_.Fail(DeviceCall::kCheck, absl::InternalError("ill"));
    auto lease = *pool->TryAcquire();
    lease.MarkSuspect();
    lease.Reset();
    EXPECT_EQ(device_.calls(DeviceCall::kCheck), checks);
    EXPECT_EQ(pool->stats().draining, 1u);
    CheckEquation(pool->stats());
    Grant next;
    pool->Acquire(kNoDeadline, next.callback());
    EXPECT_FALSE(next.result.has_value());
    if (slow.waiting() > 0) {
      slow.RunFirst();
      FAIL() << "what is given back there may take longer";
    }
    making.RunFirst();
    EXPECT_EQ(slow.waiting(), ill ? 1u : 0u);
    if (ill) {
      EXPECT_EQ(pool->stats().retired, 1u);
      EXPECT_EQ(pool->stats().destroyed_total, 0u);
      CheckEquation(pool->stats());
      slow.RunFirst();
      making.RunFirst();  // there is room for a new one
    }
    EXPECT_EQ(making.waiting() + slow.waiting(), 0u);
    ASSERT_TRUE(next.result.has_value());
    EXPECT_TRUE(next.result->ok());
    EXPECT_EQ(pool->stats().destroyed_total, ill ? 1u : 0u);
    next.result.reset();
    CheckEquation(pool->stats());
  }
}

// Once the pool has stopped, what gives lanes back may be gone.
TEST_F(StreamPoolTest, ALaneThatIsExaminedAsThePoolStopsEndsWithIt) {
  SlowTasks making, slow;
  StreamPoolOptions options;
  options.max = 1;
  auto pool =
      Make(options, {.run_making = making.run(), .run_slow = slow.run()});
  device_.Fail(DeviceCall::kCheck, absl::InternalError("ill"));
  auto lease = *pool->TryAcquire();
  lease.MarkSuspect();
  lease.Reset();
  pool->Stop();
  making.RunFirst();
  EXPECT_EQ(pool->stats().idle, 1u);
  CheckEquation(pool->stats());
  if (slow.waiting() > 0) {
    slow.RunFirst();
    FAIL() << "nobody would run that";
  }
}

// To free an arena may take as long as what runs on the device.
TEST_F(StreamPoolTest, RoomIsMadeOneLaneAfterTheOther) {
  StreamPoolOptions options;
  options.max = 3;
  options.max_arena_bytes = size_t{8} << 20;
  auto pool = Make(options);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  auto c = *pool->TryAcquire();
  EXPECT_TRUE(a.lane()->Arena(4 << 20).ok());
  EXPECT_TRUE(b.lane()->Arena(4 << 20).ok());
  a.Reset();
  b.Reset();
  // What can never fit takes nothing from others.
  EXPECT_FALSE(c.lane()->Arena(9 << 20).ok());
  EXPECT_EQ(pool->stats().arena_bytes, size_t{8} << 20);
  auto& hold = device_.HoldCall(DeviceCall::kFree);
  std::thread grower([&] { EXPECT_TRUE(c.lane()->Arena(4 << 20).ok()); });
  hold.WaitUntilHeld();
  auto other = pool->TryAcquire();
  EXPECT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(other.ok() && other->lane()->HasArena(4 << 20));
  hold.Release();
  grower.join();
  CheckEquation(pool->stats());
}

// The lane is nobody's while its arena goes.
TEST_F(StreamPoolTest, WhoWaitsGetsTheLaneWhoseArenaWent) {
  StreamPoolOptions options;
  options.max = 2;
  options.max_arena_bytes = size_t{8} << 20;
  auto pool = Make(options);
  auto a = *pool->TryAcquire();
  auto b = *pool->TryAcquire();
  Lane* const lane = a.lane();
  EXPECT_TRUE(lane->Arena(8 << 20).ok());
  a.Reset();
  auto& hold = device_.HoldCall(DeviceCall::kFree);
  std::thread grower([&] { EXPECT_TRUE(b.lane()->Arena(4 << 20).ok()); });
  hold.WaitUntilHeld();
  Grant waiting;
  const uint64_t wait = pool->Acquire(kNoDeadline, waiting.callback());
  EXPECT_FALSE(waiting.result.has_value());
  CheckEquation(pool->stats());
  hold.Release();
  grower.join();
  pool->CancelWait(wait);  // it is over
  ASSERT_TRUE(waiting.result->ok()) << waiting.result->status();
  EXPECT_EQ((*waiting.result)->lane(), lane);
  CheckEquation(pool->stats());
}

// Some wait for a lane, some do not, and lanes and arenas go meanwhile: each
// lane has one owner, and nobody waits for ever.
TEST_F(StreamPoolTest, ManyOwnersShareFewLanes) {
  StreamPoolOptions options;
  options.reserved = 1;
  options.max = 3;
  options.idle_ttl = absl::Microseconds(50);
  auto pool = Make(options);
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 500; ++i) {
        absl::StatusOr<StreamLease> lease;
        if (i % 3 == 0) {
          Grant grant;
          pool->Acquire(kNoDeadline, grant.callback());
          grant.arrived.Wait();
          ASSERT_TRUE(grant.result->ok()) << grant.result->status();
          lease = *std::move(grant.result);
        } else {
          lease = i % 3 == 1 ? pool->AcquireNow() : pool->TryAcquire();
        }
        if (!lease.ok() || !*lease) continue;
        auto arena = lease->lane()->Arena(64);
        ASSERT_TRUE(arena.ok()) << arena.status();
        auto* const owner = reinterpret_cast<size_t*>(*arena);
        *owner = t;  // without any order of its own
        std::this_thread::yield();
        EXPECT_EQ(*owner, t);
      }
    });
  }
  std::thread trimmer([&] {
    while (!done) {
      CheckEquation(pool->stats());
      pool->Trim(0);
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  trimmer.join();
  EXPECT_EQ(pool->stats().leased, 0u);
  EXPECT_EQ(pool->stats().waiting, 0u);
}

}  // namespace
}  // namespace weir
