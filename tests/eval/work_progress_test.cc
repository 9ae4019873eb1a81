#include "kernels/eval/work_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace weir {
namespace {

using ::testing::ElementsAre;
using S = WorkState;

TEST(WorkProgressTest, AWatcherIsToldWhereItStandsAndWhatComes) {
  WorkProgress progress;
  progress.Advance(S::kEnqueued);
  std::vector<S> told;
  EXPECT_NE(progress.Watch([&](S state) { told.push_back(state); }), 0u);
  EXPECT_THAT(told, ElementsAre(S::kEnqueued));
  for (const S state : {S::kCommitted, S::kScheduled, S::kError}) {
    progress.Advance(state);
    EXPECT_EQ(progress.state(), state);
  }
  EXPECT_THAT(
      told, ElementsAre(S::kEnqueued, S::kCommitted, S::kScheduled, S::kError));
  EXPECT_TRUE(progress.done());
  EXPECT_EQ(progress.Watch([](S) { FAIL(); }), 0u) << "it is over";
}

TEST(WorkProgressTest, AWatcherThatIsGivenUpHearsNothing) {
  WorkProgress progress;
  std::vector<S> first, second;
  const uint64_t watch =
      progress.Watch([&](S state) { first.push_back(state); });
  progress.Watch([&](S state) { second.push_back(state); });
  progress.Unwatch(watch);
  progress.Advance(S::kCompleted);
  EXPECT_THAT(first, ElementsAre(S::kNotEnqueued));
  EXPECT_THAT(second, ElementsAre(S::kNotEnqueued, S::kCompleted));
}

TEST(WorkProgressTest, WatchersGoWhenTheOwnerLetsThem) {
  WorkProgress progress;
  const auto held = std::make_shared<int>();
  progress.Watch([held](S) {});
  progress.Advance(S::kCompleted);
  auto watchers = progress.TakeWatchers();
  EXPECT_EQ(watchers.size(), 1u);
  EXPECT_EQ(held.use_count(), 2);
  watchers.clear();
  EXPECT_EQ(held.use_count(), 1);
  progress.Reset();
  EXPECT_EQ(progress.state(), S::kNotEnqueued);
  std::vector<S> told;
  progress.Watch([&](S state) { told.push_back(state); });
  progress.Advance(S::kCommitted);
  EXPECT_THAT(told, ElementsAre(S::kNotEnqueued, S::kCommitted));
}

// A watch may begin while the state moves on: it is told the end, or refused,
// and no state twice.
TEST(WorkProgressTest, AWatchThatBeginsMeanwhileMissesNoEnd) {
  for (int i = 0; i < 2000; ++i) {
    WorkProgress progress;
    std::vector<S> told;
    std::atomic<bool> go = false;
    std::thread mover([&] {
      while (!go) {
      }
      progress.Advance(S::kScheduled);
      progress.Advance(S::kCompleted);
    });
    go = true;
    const uint64_t watch =
        progress.Watch([&](S state) { told.push_back(state); });
    mover.join();
    if (watch == 0) continue;
    ASSERT_FALSE(told.empty());
    EXPECT_EQ(told.back(), S::kCompleted);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
    EXPECT_EQ(std::adjacent_find(told.begin(), told.end()), told.end());
  }
}

}  // namespace
}  // namespace weir
