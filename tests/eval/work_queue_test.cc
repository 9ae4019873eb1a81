#include "kernels/eval/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/hand_executor.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class WorkQueueTest : public ::testing::Test {
 protected:
  // Notes what happens to it; `next` is what it does when it is asked, by
  // default it is launched.
  class Item final : public QueueItem {
   public:
    Item(WorkQueueTest* test, std::string name)
        : test_(test), name_(std::move(name)) {}

    Step Next() override {
      test_->log_.push_back(name_);
      if (next) return next();
      test_->queue_->Remove(this);
      return Step::kRun;
    }
    absl::Status Wanted(Nanos now) const override {
      if (cancelled) return absl::CancelledError("");
      if (until <= now) return absl::DeadlineExceededError("");
      return absl::OkStatus();
    }
    Nanos deadline() const override { return until; }
    void Drop(absl::Status status) override {
      test_->log_.push_back(
          absl::StrCat(name_, " ", absl::StatusCodeToString(status.code())));
      if (drop) {
        drop();
      } else {
        test_->queue_->Remove(this);
      }
    }

    const std::string& name() const { return name_; }

    std::function<Step()> next;
    std::function<void()> drop;
    bool cancelled = false;
    Nanos until = kNoDeadline;

   private:
    WorkQueueTest* const test_;
    const std::string name_;
  };

  void Add(Item& item) {
    queue_->Append(&item);
    queue_->Return(&item);
  }
  // It is asked, and then its deadline passes. Where a machine is so busy that
  // it passes before, it is added again with a later one.
  void AddInTime(Item& item) {
    for (Nanos patience = 1'000'000;; patience *= 2) {
      item.until = NowNanos() + patience;
      Add(item);
      if (log_ == std::vector<std::string>{item.name()}) return;
      log_.clear();
    }
  }
  // The others stand in its place, and come into question there.
  void Replace(Item& item, std::vector<QueueItem*> others) {
    queue_->Replace(&item, others);
    for (QueueItem* const other : others) queue_->Return(other);
  }
  // When asked it waits, with this number.
  void ParksOnce(Item& item, uint64_t* wait) {
    item.next = [this, &item, wait] {
      *wait = queue_->Park();
      item.next = nullptr;
      return QueueItem::Step::kWait;
    };
  }

  // Runs what is posted, as it comes, until the log has so many entries.
  void RunUntilLogged(size_t entries) {
    while (log_.size() < entries) {
      executor_.posted.Wait(++posts_awaited_);
      executor_.RunAll();
    }
  }

  HandExecutor executor_;
  size_t posts_awaited_ = 0;
  TimerQueue timers_;
  const std::shared_ptr<WorkQueue> queue_ =
      WorkQueue::Create(&executor_, &timers_);
  std::vector<std::string> log_;
  Item a_{this, "a"}, b_{this, "b"}, c_{this, "c"};
};

TEST_F(WorkQueueTest, DrivesTheFirstOneUntilItHasLeft) {
  int left = 3;
  a_.next = [&] {
    if (--left == 0) queue_->Remove(&a_);
    return QueueItem::Step::kRun;
  };
  Add(a_);
  Add(b_);
  EXPECT_THAT(log_, ElementsAre("a", "a", "a", "b"));
  EXPECT_EQ(executor_.RunAll(), 0u);
}

TEST_F(WorkQueueTest, AWaitHoldsBackWhatIsBehindUntilItIsOver) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  Add(b_);
  EXPECT_THAT(log_, ElementsAre("a"));
  bool first = false;
  EXPECT_FALSE(queue_->Resume(wait + 1, absl::OkStatus()));
  EXPECT_TRUE(queue_->Resume(wait, absl::OkStatus(), [&] { first = true; }));
  EXPECT_TRUE(first);
  EXPECT_THAT(log_, ElementsAre("a")) << "it goes on through the executor";
  EXPECT_FALSE(queue_->Resume(wait, absl::OkStatus(), [] { FAIL(); }));
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a", "b"));
}

TEST_F(WorkQueueTest, AWaitThatFailsDropsTheItemAlone) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  Add(b_);
  ASSERT_TRUE(queue_->Resume(wait, absl::InternalError("")));
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a INTERNAL", "b"));
}

TEST_F(WorkQueueTest, WhatIsCancelledGoesWhereverItStands) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  Add(b_);
  Add(c_);
  b_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "b CANCELLED"));
  a_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "b CANCELLED", "a CANCELLED", "c"));
  EXPECT_FALSE(queue_->Resume(wait, absl::OkStatus(), [] { FAIL(); }));
  EXPECT_EQ(executor_.RunAll(), 0u);
}

TEST_F(WorkQueueTest, ADeadlineActsBehindAWait) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  b_.until = NowNanos() + 1'000'000;
  Add(b_);
  Add(c_);
  RunUntilLogged(2);  // by the timer, if it was in time
  EXPECT_THAT(log_, ElementsAre("a", "b DEADLINE_EXCEEDED"));
  ASSERT_TRUE(queue_->Resume(wait, absl::OkStatus()));
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "b DEADLINE_EXCEEDED", "a", "c"));
}

TEST_F(WorkQueueTest, ADeadlineGoesWithTheLastItem) {
  a_.until = NowNanos() + 3'600'000'000'000;
  a_.next = [] { return QueueItem::Step::kBlocked; };
  Add(a_);
  executor_.RunAll();
  EXPECT_EQ(timers_.pending(), 1u);
  queue_->Remove(&a_);
  EXPECT_EQ(timers_.pending(), 0u);
}

TEST_F(WorkQueueTest, ADeadlineActsOnOneThatIsBlocked) {
  a_.next = [] { return QueueItem::Step::kBlocked; };
  AddInTime(a_);
  executor_.posted.Wait();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a DEADLINE_EXCEEDED"));
}

TEST_F(WorkQueueTest, ABlockedOneIsAskedAgainWhenItIsWokenAndNotBefore) {
  a_.next = [] { return QueueItem::Step::kBlocked; };
  Add(a_);
  EXPECT_EQ(executor_.RunAll(), 0u) << "nobody asks in a circle";
  queue_->Wake();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a"));
  a_.next = nullptr;
  queue_->Wake();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a", "a"));
  queue_->Wake();
  EXPECT_EQ(executor_.RunAll(), 0u) << "there may be no executor any more";
}

TEST_F(WorkQueueTest, ALentOneIsNobodyElses) {
  queue_->Append(&a_);
  Add(b_);
  a_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre()) << "it is first, and lent";
  queue_->Return(&a_);
  EXPECT_THAT(log_, ElementsAre("a CANCELLED", "b"));
}

// Such an item is our own defect, and would be asked for ever.
TEST_F(WorkQueueTest, OneThatWaitsForNothingEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ask = [&] {
    int times = 0;
    a_.next = [&] {
      if (++times == 2) std::_Exit(0);  // unseen
      return QueueItem::Step::kWait;
    };
    Add(a_);
  };
  EXPECT_DEATH(ask(), "waits for nothing");
}

TEST_F(WorkQueueTest, OneMayHaveItsWaitBehindItWhenItAnswers) {
  int asked = 0;
  a_.next = [&] {
    ++asked;
    if (asked == 1) {
      EXPECT_TRUE(queue_->Resume(queue_->Park(), absl::OkStatus()));
    } else if (asked == 2) {
      queue_->Lend(&a_);
      queue_->Return(&a_);
    } else {
      queue_->Remove(&a_);
    }
    return QueueItem::Step::kWait;
  };
  Add(a_);
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a", "a"));
}

TEST_F(WorkQueueTest, AnItemThatLendsItselfComesBack) {
  a_.next = [&] {
    queue_->Lend(&a_);
    a_.next = nullptr;
    return QueueItem::Step::kWait;
  };
  Add(a_);
  Add(b_);
  EXPECT_THAT(log_, ElementsAre("a"));
  queue_->Return(&a_);
  EXPECT_THAT(log_, ElementsAre("a", "a", "b"));
}

TEST_F(WorkQueueTest, NothingIsDrivenWhileItIsHeld) {
  queue_->Hold();
  queue_->Hold();
  Add(a_);
  Add(b_);
  b_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("b CANCELLED"));
  queue_->Release();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("b CANCELLED"));
  queue_->Release();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("b CANCELLED", "a"));
}

TEST_F(WorkQueueTest, OthersTakeAnItemsPlace) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Item d(this, "d"), e(this, "e");
  Add(a_);
  Add(b_);
  Add(c_);
  b_.cancelled = true;
  b_.drop = [&] { Replace(b_, {&d, &e}); };
  queue_->Sweep();
  executor_.RunAll();
  ASSERT_TRUE(queue_->Resume(wait, absl::OkStatus()));
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "b CANCELLED", "a", "d", "e", "c"));
}

TEST_F(WorkQueueTest, InPlaceOfOneThatHasLeftTheyComeFirst) {
  queue_->Hold();
  Add(b_);
  Item d(this, "d"), e(this, "e");
  Replace(a_, {&d, &e});
  queue_->Release();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("d", "e", "b"));
}

// Whoever replaced it may still be busy with what it had.
TEST_F(WorkQueueTest, WhatTakesAPlaceIsNotTouchedBeforeItsReturn) {
  Item d(this, "d"), e(this, "e");
  QueueItem* const others[] = {&d, &e};
  queue_->Append(&a_);
  queue_->Replace(&a_, others);
  e.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre());
  queue_->Return(&d);
  EXPECT_THAT(log_, ElementsAre("d"));
  queue_->Return(&e);
  EXPECT_THAT(log_, ElementsAre("d", "e CANCELLED"));
}

TEST_F(WorkQueueTest, WhoEndsAWaitMayTakeTheItem) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  Add(b_);
  EXPECT_FALSE(queue_->Take(wait + 1));
  ASSERT_TRUE(queue_->Take(wait));
  EXPECT_FALSE(queue_->Take(wait));
  EXPECT_FALSE(queue_->Resume(wait, absl::OkStatus(), [] { FAIL(); }));
  a_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a")) << "it is somebody's";
  queue_->Return(&a_);
  EXPECT_THAT(log_, ElementsAre("a", "a CANCELLED", "b"));
  EXPECT_FALSE(queue_->Take(wait)) << "it has gone";
}

// What it waits for does not look at its deadline.
TEST_F(WorkQueueTest, ATimedWaitEndsAtTheDeadlineOfTheItem) {
  uint64_t wait = 0;
  a_.next = [&] {
    wait = queue_->Park(/*timed=*/true);
    return QueueItem::Step::kWait;
  };
  AddInTime(a_);
  executor_.posted.Wait();  // by the timer: there is nobody else
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a DEADLINE_EXCEEDED"));
  EXPECT_FALSE(queue_->Take(wait));
}

// Whoever ends the wait and whoever drops the item may meet.
TEST_F(WorkQueueTest, AWaitOfAnItemThatIsBeingDroppedComesTooLate) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  a_.cancelled = true;
  a_.drop = [&] {
    EXPECT_FALSE(queue_->Resume(wait, absl::OkStatus(), [] { FAIL(); }));
    queue_->Remove(&a_);
  };
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a CANCELLED"));
}

TEST_F(WorkQueueTest, OneThatIsLateIsNotAskedOn) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  AddInTime(a_);
  // Alone it is told by what it waits for.
  ASSERT_TRUE(testing::Eventually([&] { return NowNanos() >= a_.until; }));
  EXPECT_TRUE(queue_->Resume(wait, absl::OkStatus()));
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a DEADLINE_EXCEEDED"));
}

TEST_F(WorkQueueTest, EachDeadlineActsAndAnEarlierOneFirst) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  Item d(this, "d");
  b_.until = NowNanos() + Nanos{3600} * 1'000'000'000;
  c_.until = NowNanos() + 2'000'000;
  d.until = NowNanos() + 1'000'000;
  Add(b_);
  Add(c_);
  Add(d);
  RunUntilLogged(3);
  EXPECT_THAT(log_, ::testing::UnorderedElementsAre("a", "c DEADLINE_EXCEEDED",
                                                    "d DEADLINE_EXCEEDED"));
  b_.cancelled = a_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
}

TEST_F(WorkQueueTest, ADeadlineActsAfterAnotherHas) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  b_.until = NowNanos() + 1'000'000;
  Add(b_);
  RunUntilLogged(2);
  c_.until = NowNanos() + 1'000'000;
  Add(c_);
  RunUntilLogged(3);
  EXPECT_THAT(log_,
              ElementsAre("a", "b DEADLINE_EXCEEDED", "c DEADLINE_EXCEEDED"));
  a_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
}

TEST_F(WorkQueueTest, WhatTakesThePlaceOfOneThatWaitedDoesNotWait) {
  for (const bool resumed : {false, true}) {
    log_.clear();
    uint64_t wait = 0;
    Item first(this, "first"), second(this, "second");
    ParksOnce(first, &wait);
    Add(first);
    first.cancelled = true;
    first.drop = [&] { Replace(first, {&second}); };
    if (resumed) queue_->Resume(wait, absl::InternalError("not of second"));
    queue_->Sweep();
    executor_.RunAll();
    ASSERT_EQ(log_.size(), 3u);
    EXPECT_EQ(log_[2], "second");
  }
}

// However it comes to be replaced.
TEST_F(WorkQueueTest, NorDoesWhatTakesThePlaceOfOneThatWaits) {
  uint64_t wait = 0;
  ParksOnce(a_, &wait);
  Add(a_);
  Replace(a_, {&b_});
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "b"));
  EXPECT_FALSE(queue_->Resume(wait, absl::OkStatus())) << "its wait is over";
}

TEST_F(WorkQueueTest, EachWaitHasATicketOfItsOwn) {
  uint64_t first = 0, second = 0;
  ParksOnce(a_, &first);
  ParksOnce(b_, &second);
  Add(a_);
  Add(b_);
  a_.cancelled = true;
  queue_->Sweep();
  executor_.RunAll();
  EXPECT_FALSE(queue_->Resume(first, absl::OkStatus(), [] { FAIL(); }));
  EXPECT_TRUE(queue_->Resume(second, absl::OkStatus()));
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "a CANCELLED", "b", "b"));
}

TEST_F(WorkQueueTest, AWaitThatIsOverAtOnceCostsNoPost) {
  a_.next = [&] {
    a_.next = nullptr;
    EXPECT_TRUE(queue_->Resume(queue_->Park(), absl::OkStatus()));
    return QueueItem::Step::kWait;
  };
  Add(a_);
  EXPECT_THAT(log_, ElementsAre("a", "a"));
  EXPECT_EQ(executor_.RunAll(), 0u);
}

// What an item does when it is over may bring the next one, in the same thread.
TEST_F(WorkQueueTest, AnItemMayBringAnotherWhileItIsDriven) {
  a_.next = [&] {
    queue_->Remove(&a_);
    Add(b_);
    log_.push_back("after b was added");
    return QueueItem::Step::kRun;
  };
  Add(a_);
  EXPECT_THAT(log_, ElementsAre("a", "after b was added", "b"));
}

// What comes while others are driven may come to an end of the drive.
TEST_F(WorkQueueTest, WhatComesWhileAnotherLeavesIsDriven) {
  a_.next = [&] {
    queue_->Remove(&a_);
    Add(b_);
    return QueueItem::Step::kBlocked;
  };
  Add(a_);
  executor_.RunAll();
  EXPECT_THAT(log_, ElementsAre("a", "b"));
}

}  // namespace
}  // namespace weir
