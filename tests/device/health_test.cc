#include "kernels/device/health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
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

TEST(DeviceHealthTest, WatchersHearItOnce) {
  DeviceHealth health;
  std::vector<std::string> heard;
  health.OnPoisoned([&](const absl::Status& cause) {
    heard.emplace_back(cause.message());
    EXPECT_TRUE(health.poisoned());
    // A watcher may ask and watch again.
    health.OnPoisoned([&](const absl::Status& again) {
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
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      health.OnPoisoned([&](const absl::Status&) { ++heard; });
      health.Poison(absl::InternalError(std::to_string(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heard, 4);
}

}  // namespace
}  // namespace weir
