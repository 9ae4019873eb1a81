#include "server/scheduling/fair_threads.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/clock.h"
#include "kernels/base/thread_role.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"

namespace weir {
namespace {

TEST(FairThreadsTest, WhatOnePeerPostsHoldsUpNoOther) {
  Event gate, ran;
  FairThreads threads(2);
  for (int i = 0; i < 100; ++i) {
    threads.Post("many", [&] { gate.Wait(); });
  }
  threads.Post("one", [&] { ran.Set(); });
  ran.Wait();
  gate.Set();
}

TEST(FairThreadsTest, ThoseWhoWaitGoInTurn) {
  Event first, second, done;
  Mutex mu;
  std::string order;
  FairThreads threads(2);
  threads.Post("first", [&] { first.Wait(); });
  threads.Post("second", [&] { second.Wait(); });
  for (const char* task : {"a1", "a2", "a3", "b1", "b2", "c1"}) {
    threads.Post(std::string(task, 1), [&, task] {
      MutexLock lock(&mu);
      order += task;
      done.Set();
    });
  }
  // One thread goes on.
  first.Set();
  done.Wait(6);
  EXPECT_EQ(order, "a1b1c1a2b2a3");
  second.Set();
}

// It comes back behind those who have waited longer.
TEST(FairThreadsTest, WhoComesAgainWaitsForItsTurn) {
  Event first, second, done;
  std::string order;
  FairThreads threads(2);
  threads.Post("first", [&] { first.Wait(); });
  threads.Post("second", [&] { second.Wait(); });
  const auto note = [&](const char* task) {
    order += task;
    done.Set();
  };
  threads.Post("a", [&] {
    note("a1");
    threads.Post("a", [&] { note("a2"); });
  });
  threads.Post("b", [&] { note("b1"); });
  first.Set();
  done.Wait(3);
  EXPECT_EQ(order, "a1b1a2");
  second.Set();
}

TEST(FairThreadsTest, OnePeerHasAllThreadsButOne) {
  Event gate, began, ran;
  FairThreads threads(4);
  for (int i = 0; i < 4; ++i) {
    threads.Post("many", [&] {
      began.Set();
      gate.Wait();
    });
  }
  began.Wait(3);
  threads.Post("one", [&] { ran.Set(); });
  ran.Wait();
  EXPECT_EQ(began.count(), 3u);
  gate.Set();
}

// "two" has waited longer, and has a thread already.
TEST(FairThreadsTest, WhoHasNoThreadGoesFirst) {
  Event gate, began, held, done;
  std::string order;
  FairThreads threads(3);
  threads.Post("two", [&] {
    began.Set();
    gate.Wait();
  });
  threads.Post("x", [&] {
    began.Set();
    gate.Wait();
  });
  threads.Post("y", [&] {
    began.Set();
    held.Wait();
  });
  began.Wait(3);
  threads.Post("two", [&] {
    order += "two ";
    done.Set();
  });
  threads.Post("none", [&] {
    order += "none ";
    done.Set();
  });
  held.Set();
  done.Wait(2);
  EXPECT_EQ(order, "none two ");
  gate.Set();
}

// There may be any number of them in the course of time.
TEST(FairThreadsTest, PeersAreForgottenWithTheirLastTask) {
  Event gate, done;
  FairThreads threads(2);
  threads.Post("waits", [&] { gate.Wait(); });
  for (int i = 0; i < 100; ++i) {
    threads.Post("peer " + std::to_string(i), [&] { done.Set(); });
  }
  done.Wait(100);
  EXPECT_TRUE(testing::Eventually([&] { return threads.peers() == 1; }));
  gate.Set();
  EXPECT_TRUE(testing::Eventually([&] { return threads.peers() == 0; }));
}

// Two threads that are busy until gate_ is set.
class WaitingTasksTest : public ::testing::Test {
 protected:
  WaitingTasksTest() {
    for (const char* peer : {"first", "second"}) {
      threads_.Post(peer, [this] {
        busy_.Set();
        gate_.Wait();
      });
    }
    busy_.Wait(2);
  }
  ~WaitingTasksTest() override { gate_.Set(); }

  Event busy_, gate_, ran_, late_;
  FairThreads threads_{2};
};

TEST_F(WaitingTasksTest, AreLateAtTheirDeadline) {
  threads_.Post(
      "a", NowNanos(), [&] { ran_.Set(); }, [&] { late_.Set(); });
  late_.Wait();
  EXPECT_EQ(threads_.waiting(), 0u);
  Event next;
  threads_.Post("a", [&] { next.Set(); });
  gate_.Set();
  next.Wait();
  EXPECT_EQ(ran_.count(), 0u);
  EXPECT_EQ(late_.count(), 1u);
}

// Who says none has that of all waits.
TEST(FairThreadsTest, NothingThatIsWaitedForWaitsForEver) {
  Event busy, gate, late;
  FairThreads threads(2, /*longest_wait=*/0);
  for (const char* peer : {"first", "second"}) {
    threads.Post(peer, [&] {
      busy.Set();
      gate.Wait();
    });
  }
  busy.Wait(2);
  threads.Post(
      "a", kNoDeadline, [] {}, [&] { late.Set(); });
  late.Wait();
  gate.Set();
}

TEST_F(WaitingTasksTest, RunInTimeAndAreNotLate) {
  constexpr Nanos kLong = 3'600'000'000'000;
  threads_.Post(
      "a", NowNanos() + kLong, [&] { ran_.Set(); }, [&] { late_.Set(); });
  gate_.Set();
  ran_.Wait();
  EXPECT_EQ(late_.count(), 0u);
}

// Which passes while the first one runs, and both threads are busy.
TEST(FairThreadsTest, WhatHasBegunIsNotLate) {
  bool has_begun = false;
  for (Nanos patience = 10'000'000; !has_begun; patience *= 2) {
    Event go_on, ran, late, passed;
    FairThreads threads(2);
    const Nanos deadline = NowNanos() + patience;
    threads.Post(
        "a", deadline,
        [&] {
          ran.Set();
          go_on.Wait();
        },
        [&] { late.Set(); });
    threads.Post("b", [&] { go_on.Wait(); });
    threads.Post(
        "c", deadline + 1, [&] { passed.Set(); }, [&] { passed.Set(); });
    passed.Wait();
    EXPECT_TRUE(
        testing::Eventually([&] { return ran.count() + late.count() > 0; }));
    // On a busy machine it may have been late before.
    has_begun = ran.count() > 0;
    EXPECT_EQ(ran.count() + late.count(), 1u);
    go_on.Set();
  }
}

TEST_F(WaitingTasksTest, AreRemoved) {
  const auto task = threads_.Post(
      "a", kNoDeadline, [&] { ran_.Set(); }, [&] { late_.Set(); });
  Event next;
  threads_.Post("a", [&] { next.Set(); });
  EXPECT_EQ(threads_.waiting(), 2u);
  EXPECT_TRUE(threads_.Remove(task));
  EXPECT_EQ(threads_.waiting(), 1u);
  EXPECT_FALSE(threads_.Remove(task));
  gate_.Set();
  next.Wait();
  EXPECT_EQ(ran_.count() + late_.count(), 0u);
}

TEST_F(WaitingTasksTest, AreNotRemovedOnceTheyHaveBegun) {
  gate_.Set();
  Event go_on;
  const auto task = threads_.Post(
      "a", kNoDeadline,
      [&] {
        ran_.Set();
        go_on.Wait();
      },
      [] {});
  ran_.Wait();
  EXPECT_FALSE(threads_.Remove(task));
  go_on.Set();
  // It is on this stack.
  EXPECT_TRUE(testing::Eventually([&] { return threads_.peers() == 0; }));
}

TEST_F(WaitingTasksTest, ThatGiveMemoryBackGoFirst) {
  std::string order;
  const auto note = [&](const char* task) {
    return [&, task] {
      order += task;
      ran_.Set();
    };
  };
  threads_.Post("a", note("a1"));
  threads_.Post("a", note("a2"));
  threads_.PostFirst("a", note("a0"));
  // One peer runs on one of two threads.
  gate_.Set();
  ran_.Wait(3);
  EXPECT_EQ(order, "a0a1a2");
}

TEST(FairThreadsTest, WhatWasPostedRunsBeforeTheyStop) {
  Event gate, ran;
  {
    FairThreads threads(2);
    for (int i = 0; i < 10; ++i) {
      threads.Post("one", [&] {
        gate.Wait();
        ran.Set();
      });
    }
    threads.Post("other", [&] {
      gate.Set();
      threads.Post("other", [&] { ran.Set(); });
    });
  }
  EXPECT_EQ(ran.count(), 11u);
}

TEST(FairThreadsTest, ThereAreTwoAtLeast) {
  Event gate, ran;
  FairThreads threads(0);
  threads.Post("one", [&] { gate.Wait(); });
  threads.Post("other", [&] { ran.Set(); });
  ran.Wait();
  gate.Set();
  EXPECT_EQ(FairThreads::DefaultThreads(1), 2u);
  EXPECT_EQ(FairThreads::DefaultThreads(16), 4u);
  EXPECT_EQ(FairThreads::DefaultThreads(256), 8u);
}

// Others have their turn on them.
TEST(FairThreadsTest, TheirTasksMayNotWait) {
  Event done;
  ThreadRole role = ThreadRole::kOther;
  FairThreads threads(1);
  threads.Post("one", [&] {
    role = CurrentThreadRole();
    done.Set();
  });
  done.Wait();
  EXPECT_EQ(role, ThreadRole::kStep);
  EXPECT_FALSE(MayWait(role));
}

}  // namespace
}  // namespace weir
