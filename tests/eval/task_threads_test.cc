#include "kernels/eval/task_threads.h"

#include <gtest/gtest.h>

#include <memory>

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

}  // namespace
}  // namespace weir
