#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "kernels/eval/executor.h"
#include "tests/base/event.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class ThreadExecutorTest : public ::testing::Test {
 protected:
  // The thread is kept until Release.
  void Hold() {
    executor_->Post([this] {
      held_.Set();
      release_.Wait();
    });
    held_.Wait();
  }
  void Release() { release_.Set(); }

  // Notes that it ran, and that it is gone.
  Executor::Task Task(int number) {
    auto gone = std::shared_ptr<void>(
        nullptr, [this, number](void*) { gone_.push_back(number); });
    return [this, number, gone = std::move(gone)] { ran_.push_back(number); };
  }

  Event held_, release_;
  std::vector<int> ran_, gone_;
  std::unique_ptr<ThreadExecutor> executor_ =
      std::make_unique<ThreadExecutor>("test", ThreadRole::kOther);
};

TEST_F(ThreadExecutorTest, RunsInOrderWhatWasPostedBeforeItEnds) {
  Hold();
  for (int i = 0; i < 3; ++i) executor_->Post(Task(i));
  EXPECT_EQ(executor_->waiting(), 3u);
  Release();
  executor_ = nullptr;
  EXPECT_THAT(ran_, ElementsAre(0, 1, 2));
  EXPECT_THAT(gone_, ElementsAre(0, 1, 2));
}

TEST_F(ThreadExecutorTest, WhatIsRemovedIsGoneAndTheOthersRun) {
  Hold();
  ThreadExecutor::TaskId ids[3] = {};
  for (int i = 0; i < 3; ++i) executor_->Post(Task(i), &ids[i]);
  EXPECT_TRUE(executor_->Remove(ids[1]));
  EXPECT_EQ(executor_->waiting(), 2u);
  EXPECT_THAT(gone_, ElementsAre(1));
  EXPECT_FALSE(executor_->Remove(ids[1]));
  EXPECT_FALSE(executor_->Remove(0));
  Release();
  executor_ = nullptr;
  EXPECT_THAT(ran_, ElementsAre(0, 2));
}

TEST_F(ThreadExecutorTest, WhatHasBegunIsNotRemoved) {
  ThreadExecutor::TaskId id = 0;
  executor_->Post(
      [&] {
        EXPECT_NE(id, 0u) << "written before";
        held_.Set();
        release_.Wait();
        ran_.push_back(0);
      },
      &id);
  held_.Wait();
  EXPECT_EQ(executor_->waiting(), 0u);
  EXPECT_FALSE(executor_->Remove(id));
  Release();
  executor_ = nullptr;
  EXPECT_THAT(ran_, ElementsAre(0));
}

// What it held may post, or remove, another.
TEST_F(ThreadExecutorTest, WhatIsRemovedGoesWithoutTheLock) {
  Hold();
  ThreadExecutor::TaskId first = 0, second = 0;
  executor_->Post(Task(0), &second);
  auto ends = std::shared_ptr<void>(
      nullptr, [&](void*) { EXPECT_TRUE(executor_->Remove(second)); });
  executor_->Post([ends = std::move(ends)] {}, &first);
  EXPECT_TRUE(executor_->Remove(first));
  EXPECT_EQ(executor_->waiting(), 0u);
  Release();
}

}  // namespace
}  // namespace weir
