#include "kernels/base/thread_role.h"

#include <gtest/gtest.h>

#include <thread>

#include "kernels/base/timer_queue.h"
#include "tests/base/event.h"

namespace weir {
namespace {

TEST(ThreadRoleTest, IsTheThreadsOwnAndEndsWithItsScope) {
  EXPECT_EQ(CurrentThreadRole(), ThreadRole::kOther);
  {
    const ScopedThreadRole io(ThreadRole::kIo);
    EXPECT_EQ(CurrentThreadRole(), ThreadRole::kIo);
    {
      const ScopedThreadRole completion(ThreadRole::kCompletion);
      EXPECT_EQ(CurrentThreadRole(), ThreadRole::kCompletion);
    }
    EXPECT_EQ(CurrentThreadRole(), ThreadRole::kIo);
    std::thread([] {
      EXPECT_EQ(CurrentThreadRole(), ThreadRole::kOther);
    }).join();
  }
  EXPECT_EQ(CurrentThreadRole(), ThreadRole::kOther);
}

TEST(ThreadRoleTest, SomeMayWait) {
  for (const ThreadRole role :
       {ThreadRole::kOther, ThreadRole::kAllocator, ThreadRole::kLauncher}) {
    EXPECT_TRUE(MayWait(role)) << ThreadRoleName(role);
  }
  for (const ThreadRole role : {ThreadRole::kIo, ThreadRole::kContinuation,
                                ThreadRole::kCompletion, ThreadRole::kTimer}) {
    EXPECT_FALSE(MayWait(role)) << ThreadRoleName(role);
  }
}

TEST(ThreadRoleTest, CountsWhatWaitsInTheWrongPlace) {
  ExpectMayWait("anything");
  {
    const ScopedThreadRole allocator(ThreadRole::kAllocator);
    ExpectMayWait("anything");
  }
  EXPECT_EQ(CountMisplacedWaits().count, 0u);
  EXPECT_EQ(CountMisplacedWaits().first, "");
  TimerQueue timers;
  Event fired;
  timers.Add(0, [&] {
    ExpectMayWait("cudaFree");
    fired.Set();
  });
  fired.Wait();
  EXPECT_EQ(CountMisplacedWaits().count, 1u);
  EXPECT_EQ(CountMisplacedWaits().first, "cudaFree on a timer thread");
  const ScopedThreadRole io(ThreadRole::kIo);
  ExpectMayWait("cudaMalloc");
  EXPECT_EQ(CountMisplacedWaits().count, 2u);
  EXPECT_EQ(CountMisplacedWaits().first, "cudaFree on a timer thread");
}

}  // namespace
}  // namespace weir
