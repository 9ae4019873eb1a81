#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/eval/executor.h"
#include "kernels/eval/task_threads.h"
#include "tests/base/event.h"

namespace weir {
namespace {

// Runs a task when the test says so.
class HandRunner final : public TaskRunner {
 public:
  void Post(Executor::Task task) override { tasks.push_back(std::move(task)); }
  void RunOne() {
    Executor::Task task = std::move(tasks.front());
    tasks.pop_front();
    task();
  }
  std::deque<Executor::Task> tasks;
};

TEST(Strand, RunsInOrderOneAtATimeOnManyThreads) {
  constexpr int kTasks = 2000;
  std::vector<int> ran;
  Event done;
  {
    TaskThreads threads("test", 4, ThreadRole::kOther);
    std::vector<std::shared_ptr<Strand>> others;
    const auto strand = Strand::Create(&threads);
    for (int i = 0; i < 3; ++i) others.push_back(Strand::Create(&threads));
    for (int i = 0; i < kTasks; ++i) {
      strand->Post([&ran, i] { ran.push_back(i); });  // a race if not alone
      for (const auto& other : others) other->Post([] {});
    }
    strand->Post([&done] { done.Set(); });
    done.Wait();
  }
  ASSERT_EQ(ran.size(), static_cast<size_t>(kTasks));
  for (int i = 0; i < kTasks; ++i) ASSERT_EQ(ran[static_cast<size_t>(i)], i);
}

TEST(Strand, PostRunsNothingAndOneTurnRunsMany) {
  HandRunner runner;
  const auto strand = Strand::Create(&runner);
  int ran = 0;
  for (int i = 0; i < 100; ++i) strand->Post([&ran] { ++ran; });
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(runner.tasks.size(), 1u);
  runner.RunOne();
  EXPECT_GT(ran, 1);
  EXPECT_LT(ran, 100) << "then it is the others' turn";
  while (!runner.tasks.empty()) {
    EXPECT_EQ(runner.tasks.size(), 1u);
    runner.RunOne();
  }
  EXPECT_EQ(ran, 100);
  strand->Post([&ran] { ++ran; });
  runner.RunOne();
  EXPECT_EQ(ran, 101);
  EXPECT_TRUE(runner.tasks.empty());
}

TEST(Strand, ATaskMayPostAndDropTheStrand) {
  HandRunner runner;
  auto strand = Strand::Create(&runner);
  int ran = 0;
  strand->Post([&] {
    strand->Post([&] {
      ++ran;
      strand.reset();
    });
    ++ran;
  });
  while (!runner.tasks.empty()) runner.RunOne();
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(strand, nullptr);
}

}  // namespace
}  // namespace weir
