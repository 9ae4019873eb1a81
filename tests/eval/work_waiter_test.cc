#include "tests/eval/work_waiter.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(WorkWaiterTest, KnowsWhatHappened) {
  Work work;
  WorkWaiter waiter;
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiter.WaitReturned(work, 1)));
  EXPECT_TRUE(waiter.OnPlanned(work).ok());
  waiter.OnLaunch(work);
  waiter.OnReturn(work);
  EXPECT_TRUE(waiter.WaitReturned(work).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(waiter.WaitDone(work, 1)));
  waiter.OnDone(work);
  EXPECT_TRUE(waiter.WaitDone(work).ok());
  waiter.Reset();
  waiter.OnReturn(work);
  waiter.OnDone(work);
}

// A work that tells its observer twice, or when it is over, is our own defect:
// whatever test meets it dies.
TEST(WorkWaiterTest, EachHappensOnce) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Work work;
  WorkWaiter waiter;
  const auto twice = [](auto call) {
    call();
    call();
  };
  EXPECT_DEATH(twice([&] { waiter.OnReturn(work); }), "returned twice");
  EXPECT_DEATH(twice([&] { waiter.OnPlanned(work).IgnoreError(); }),
               "planned twice");
  EXPECT_DEATH(twice([&] { waiter.OnLaunch(work); }), "launched twice");
  EXPECT_DEATH(twice([&] { waiter.OnDone(work); }), "done twice");
}

TEST(WorkWaiterTest, NothingHappensAfterTheEnd) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  Work work;
  WorkWaiter waiter;
  waiter.OnDone(work);
  EXPECT_DEATH(waiter.OnReturn(work), "returned after it was done");
  EXPECT_DEATH(waiter.OnPlanned(work).IgnoreError(), "planned after");
  EXPECT_DEATH(waiter.OnLaunch(work), "launched after");
}

}  // namespace
}  // namespace weir
