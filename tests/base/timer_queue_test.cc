#include "kernels/base/timer_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/base/event.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

constexpr Nanos kHour = Nanos{3600} * 1'000'000'000;

TEST(TimerQueueTest, FiresInTheOrderOfDeadlines) {
  TimerQueue timers;
  std::vector<int> order;
  Event held, release, done;
  // The thread is held while the others are added, so that all are due at once.
  timers.Add(0, [&] {
    held.Set();
    release.Wait();
  });
  held.Wait();
  timers.Add(3, [&] { order.push_back(3), done.Set(); });
  timers.Add(1, [&] { order.push_back(1); });
  timers.Add(2, [&] { order.push_back(2); });
  timers.Add(1, [&] { order.push_back(11); });
  release.Set();
  done.Wait();
  EXPECT_THAT(order, ElementsAre(1, 11, 2, 3));
}

TEST(TimerQueueTest, NeverFiresBeforeTheDeadline) {
  TimerQueue timers;
  const Nanos deadline = NowNanos() + 2'000'000;
  std::atomic<Nanos> fired{0};
  Event done;
  timers.Add(deadline, [&] {
    fired = NowNanos();
    done.Set();
  });
  done.Wait();
  EXPECT_GE(fired, deadline);
}

TEST(TimerQueueTest, AnEarlierTimerOvertakesTheOneWaitedFor) {
  TimerQueue timers;
  Event done;
  EXPECT_NE(timers.Add(NowNanos() + kHour, [] { FAIL(); }), 0u);
  timers.Add(NowNanos(), [&] { done.Set(); });
  done.Wait();
}

TEST(TimerQueueTest, CancelledTimersDoNotFireAndAreDestroyed) {
  TimerQueue timers;
  auto held = std::make_shared<int>(0);
  const auto id = timers.Add(NowNanos() + kHour, [held] { FAIL(); });
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_TRUE(timers.Cancel(id));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(timers.Cancel(id));
}

TEST(TimerQueueTest, CancelSaysWhetherTheCallbackRuns) {
  TimerQueue timers;
  Event started, release, done;
  const auto id = timers.Add(0, [&] {
    started.Set();
    release.Wait();
    done.Set();
  });
  started.Wait();
  EXPECT_FALSE(timers.Cancel(id));
  release.Set();
  done.Wait();
}

TEST(TimerQueueTest, NoDeadlineIsNoTimer) {
  TimerQueue timers;
  EXPECT_EQ(timers.Add(kNoDeadline, [] { FAIL(); }), 0u);
  EXPECT_FALSE(timers.Cancel(0));
}

TEST(TimerQueueTest, CallbacksMayAddAndCancel) {
  TimerQueue timers;
  Event done;
  const auto other = timers.Add(NowNanos() + kHour, [] { FAIL(); });
  timers.Add(0, [&] {
    EXPECT_TRUE(timers.Cancel(other));
    timers.Add(0, [&] { done.Set(); });
  });
  done.Wait();
}

TEST(TimerQueueTest, StopWaitsForTheRunningCallback) {
  TimerQueue timers;
  Event started;
  std::atomic<bool> finished{false};
  timers.Add(0, [&] {
    started.Set();
    finished = true;
  });
  timers.Add(NowNanos() + kHour, [] { FAIL(); });
  started.Wait();
  timers.Stop();
  EXPECT_TRUE(finished);
  timers.Stop();
}

}  // namespace
}  // namespace weir
