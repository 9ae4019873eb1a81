#include "kernels/eval/task_threads.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "tests/base/event.h"
#include "tests/base/eventually.h"

namespace weir {
namespace {

TEST(TaskThreadsTest, WhatIsPostedWhileTheyStopRunsToo) {
  Event ran;
  {
    TaskThreads threads("test", 4, ThreadRole::kOther);
    threads.Post([&] {
      // They stop: none is counted any more.
      EXPECT_TRUE(testing::Eventually([&] { return threads.threads() == 0; }));
      threads.Post([&] {
        threads.Post([&] { ran.Set(); });
        ran.Set();
      });
      EXPECT_EQ(threads.threads(), 0u);
    });
  }
  EXPECT_EQ(ran.count(), 2u);
}

TEST(TaskThreadsTest, AsManyRunAtOnceAsThereMayBeThreads) {
  constexpr size_t kMost = 2;
  Event entered, release, ran;
  TaskThreads threads("test", kMost, ThreadRole::kLauncher);
  EXPECT_EQ(threads.threads(), 0u) << "made when they are needed";
  for (size_t i = 0; i < kMost + 1; ++i) {
    threads.Post([&] {
      EXPECT_EQ(CurrentThreadRole(), ThreadRole::kLauncher);
      entered.Set();
      release.Wait();
      ran.Set();
    });
  }
  entered.Wait(kMost);
  EXPECT_EQ(threads.threads(), kMost);
  EXPECT_EQ(entered.count(), kMost);
  release.Set();
  ran.Wait(kMost + 1);
  EXPECT_EQ(threads.threads(), kMost);
}

// What ends with it may have more for them to do.
TEST(TaskThreadsTest, ATaskEndsOutsideTheirLock) {
  Event ran;
  TaskThreads threads("test", 1, ThreadRole::kOther);
  std::shared_ptr<void> held(nullptr,
                             [&](void*) { threads.Post([&] { ran.Set(); }); });
  threads.Post([held = std::move(held)] {});
  ran.Wait();
}

}  // namespace
}  // namespace weir
