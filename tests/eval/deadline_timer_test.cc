#include "kernels/eval/deadline_timer.h"

#include <gtest/gtest.h>

#include "tests/base/event.h"

namespace weir {
namespace {

constexpr Nanos kHour = Nanos{3600} * 1'000'000'000;

TEST(DeadlineTimerTest, TheEarliestDeadlineIsTheOneThatCounts) {
  TimerQueue timers;
  DeadlineTimer timer(&timers);
  Event late, later, soon, held, release;
  // The thread is held, so that what is due is still there to be counted.
  timers.Add(0, [&] {
    held.Set();
    release.Wait();
  });
  held.Wait();
  timer.Set(NowNanos() + kHour, [&] { late.Set(); });
  timer.Set(NowNanos() + 2 * kHour, [&] { later.Set(); });
  EXPECT_EQ(timers.pending(), 1u);
  timer.Set(NowNanos() + 1'000'000, [&] { soon.Set(); });
  EXPECT_EQ(timers.pending(), 1u);
  release.Set();
  soon.Wait();
  EXPECT_EQ(late.count() + later.count(), 0u);
}

TEST(DeadlineTimerTest, ADeadlineThatNeverComesNeedsNone) {
  TimerQueue timers;
  DeadlineTimer timer(&timers);
  timer.Set(kNoDeadline, [] { FAIL(); });
  EXPECT_EQ(timers.pending(), 0u);
}

TEST(DeadlineTimerTest, OnceStoppedOrFiredItIsSetForAnything) {
  TimerQueue timers;
  DeadlineTimer timer(&timers);
  timer.Set(NowNanos() + kHour, [] { FAIL(); });
  timer.Stop();
  timer.Stop();
  EXPECT_EQ(timers.pending(), 0u);
  Event first, second;
  timer.Set(NowNanos(), [&] { first.Set(); });
  first.Wait();
  timer.Fired();
  timer.Set(NowNanos() + 1'000'000, [&] { second.Set(); });
  second.Wait();
}

}  // namespace
}  // namespace weir
