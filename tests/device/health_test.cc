#include "kernels/device/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(DeviceHealthTest, TheFirstCauseStays) {
  DeviceHealth health;
  EXPECT_FALSE(health.poisoned());
  EXPECT_TRUE(health.status().ok());
  health.Poison(absl::InternalError("illegal address"));
  health.Poison(absl::InternalError("later"));
  EXPECT_TRUE(health.poisoned());
  const absl::Status status = health.status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(status), "DEVICE_POISONED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("illegal address"));
}

TEST(DeviceHealthTest, TheCausesOwnDetailsStay) {
  DeviceHealth health;
  health.Poison(WithReason(absl::UnavailableError("illegal address"),
                           "DEVICE_FAULT",
                           {{"code", "700"}, {"name", "cudaErrorX"}}));
  EXPECT_THAT(Metadata(health.status()), testing::IsSupersetOf(ReasonMetadata{
                                             {"code", "700"},
                                             {"name", "cudaErrorX"},
                                             {"cause_code", "UNAVAILABLE"},
                                             {"cause", "illegal address"}}));
}

TEST(DeviceHealthTest, WatchersHearOfEveryStall) {
  DeviceHealth health;
  std::vector<std::string> heard;
  auto first = health.OnStall([&](const absl::Status& stall) {
    EXPECT_EQ(health.stall(), stall);
    heard.push_back("first: " + std::string(stall.message()));
  });
  DeviceHealth::Watch second;
  second = health.OnStall([&](const absl::Status& stall) {
    heard.push_back("second: " + std::string(stall.message()));
    second.Reset();  // it may drop its own watch
  });
  health.SetStalled(absl::UnavailableError("stands"));
  EXPECT_EQ(Reason(health.stall()), "DEVICE_STALLED");
  health.SetStalled(absl::OkStatus());
  EXPECT_THAT(heard, testing::ElementsAre("first: stands", "second: stands",
                                          "first: "));
  first.Reset();
  health.SetStalled(absl::UnavailableError("stands"));
  EXPECT_THAT(heard, testing::SizeIs(3));
  EXPECT_EQ(health.stalls_total(), 2u);
}

// It is said again as it gets longer.
TEST(DeviceHealthTest, AStallCountsOnceUntilItEnds) {
  DeviceHealth health;
  health.SetStalled(absl::UnavailableError("stands for 1 s"));
  health.SetStalled(absl::UnavailableError("stands for 2 s"));
  EXPECT_EQ(health.stall().message(), "stands for 2 s");
  EXPECT_EQ(health.stalls_total(), 1u);
  health.SetStalled(absl::OkStatus());
  health.SetStalled(absl::OkStatus());
  EXPECT_EQ(health.stalls_total(), 1u);
  health.SetStalled(absl::UnavailableError("stands again"));
  EXPECT_EQ(health.stalls_total(), 2u);
}

TEST(DeviceHealthTest, WatchersHearItOnce) {
  DeviceHealth health;
  std::vector<std::string> heard;
  DeviceHealth::Watch second;
  const auto first = health.OnPoisoned([&](const absl::Status& cause) {
    heard.emplace_back(cause.message());
    EXPECT_TRUE(health.poisoned());
    // A watcher may ask and watch again.
    second = health.OnPoisoned([&](const absl::Status& again) {
      heard.emplace_back(again.message());
    });
  });
  health.Poison(absl::InternalError("a"));
  health.Poison(absl::InternalError("b"));
  EXPECT_THAT(heard, testing::ElementsAre("a", "a"));
}

TEST(DeviceHealthTest, OneOfManyCausesWins) {
  DeviceHealth health;
  std::atomic<int> heard{0};
  // They outlive the threads: who loses may be done before it is told.
  std::array<DeviceHealth::Watch, 4> watches;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < watches.size(); ++i) {
    threads.emplace_back([&, i] {
      watches[i] = health.OnPoisoned([&](const absl::Status&) { ++heard; });
      health.Poison(absl::InternalError(std::to_string(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heard, 4);
}

TEST(DeviceHealthTest, AWatchThatIsGoneHearsNothing) {
  DeviceHealth health;
  std::vector<std::string> heard;
  const auto watcher = [&](std::string name) {
    return [&heard, name](const absl::Status&) { heard.push_back(name); };
  };
  auto gone = health.OnPoisoned(watcher("gone"));
  auto replaced = health.OnPoisoned(watcher("replaced"));
  auto moved = health.OnPoisoned(watcher("moved"));
  const auto kept = std::move(moved);
  gone.Reset();
  replaced = health.OnPoisoned(watcher("new"));
  health.Poison(absl::InternalError("a"));
  EXPECT_THAT(heard, testing::ElementsAre("moved", "new"));
}

TEST(DeviceHealthTest, ACallbackMayDestroyItsOwnWatch) {
  DeviceHealth health;
  int heard = 0;
  DeviceHealth::Watch watch;
  watch = health.OnPoisoned([&](const absl::Status&) {
    watch.Reset();
    ++heard;
  });
  health.Poison(absl::InternalError("a"));
  EXPECT_EQ(heard, 1);
}

TEST(DeviceHealthTest, AWatchMayOutliveTheLatch) {
  DeviceHealth::Watch watch;
  {
    DeviceHealth health;
    watch = health.OnPoisoned([](const absl::Status&) { FAIL(); });
  }
  watch.Reset();
}

}  // namespace
}  // namespace weir
