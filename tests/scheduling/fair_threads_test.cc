#include "server/scheduling/fair_threads.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/base/event.h"

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

}  // namespace
}  // namespace weir
