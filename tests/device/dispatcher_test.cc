#include "kernels/device/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/device/device.h"
#include "tests/base/event.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class DispatcherTest : public ::testing::Test {
 protected:
  Dispatcher::Ready Into(std::optional<absl::Status>* result) {
    return [result](absl::Status status) {
      ASSERT_FALSE(result->has_value());
      *result = std::move(status);
    };
  }

  TimerQueue timers_;
  Dispatcher dispatcher_{&timers_, /*max_parked=*/2};
  std::shared_ptr<Timeline> a_ = std::make_shared<Timeline>("a");
  std::shared_ptr<Timeline> b_ = std::make_shared<Timeline>("b");
};

TEST_F(DispatcherTest, RunsInlineWhenNothingIsToBeWaitedFor) {
  ASSERT_TRUE(a_->Advance(3).ok());
  std::optional<absl::Status> none, reached, failed;
  dispatcher_.WhenReady({}, nullptr, kNoDeadline, Into(&none));
  EXPECT_EQ(none, absl::OkStatus());
  dispatcher_.WhenReady({Point(), Point{a_, 3}}, nullptr, kNoDeadline,
                        Into(&reached));
  EXPECT_EQ(reached, absl::OkStatus());
  b_->Fail(absl::InternalError("broken"));
  dispatcher_.WhenReady({Point{a_, 9}, Point{b_, 1}}, nullptr, kNoDeadline,
                        Into(&failed));
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(failed->message()), HasSubstr("timeline b"));
  EXPECT_EQ(dispatcher_.parked(), 0u);
}

TEST_F(DispatcherTest, WaitsForEveryPoint) {
  std::optional<absl::Status> result;
  dispatcher_.WhenReady({Point{a_, 1}, Point{b_, 2}}, nullptr, kNoDeadline,
                        Into(&result));
  EXPECT_EQ(dispatcher_.parked(), 1u);
  ASSERT_TRUE(a_->Advance(1).ok());
  ASSERT_TRUE(b_->Advance(1).ok());
  EXPECT_FALSE(result.has_value());
  ASSERT_TRUE(b_->Advance(2).ok());
  EXPECT_EQ(result, absl::OkStatus());
  EXPECT_EQ(dispatcher_.parked(), 0u);
}

TEST_F(DispatcherTest, TheFirstFailureEndsTheWait) {
  std::optional<absl::Status> result;
  dispatcher_.WhenReady({Point{a_, 1}, Point{b_, 2}}, nullptr, kNoDeadline,
                        Into(&result));
  ASSERT_TRUE(b_->Advance(2, WithReason(absl::InvalidArgumentError("bad"),
                                        "INDEX_OUT_OF_RANGE"))
                  .ok());
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Reason(*result), "INDEX_OUT_OF_RANGE");
  EXPECT_THAT(std::string(result->message()), HasSubstr("timeline b"));
  ASSERT_TRUE(a_->Advance(1).ok());  // changes nothing
  EXPECT_EQ(dispatcher_.parked(), 0u);
}

// However a wait ends, on none of its timelines and in no timer.
TEST_F(DispatcherTest, NothingIsLeftOfAWait) {
  const auto wait = [this](std::optional<absl::Status>* result) {
    return dispatcher_.WhenReady({Point{a_, 9}, Point{b_, 9}}, nullptr,
                                 NowNanos() + 3'600'000'000'000, Into(result));
  };
  std::optional<absl::Status> cancelled, failed, reached;
  dispatcher_.CancelWait(wait(&cancelled));
  EXPECT_TRUE(cancelled.has_value());
  EXPECT_EQ(a_->waits() + b_->waits() + timers_.pending(), 0u);
  wait(&reached);
  EXPECT_EQ(a_->waits() + b_->waits() + timers_.pending(), 3u);
  ASSERT_TRUE(a_->Advance(9).ok());
  ASSERT_TRUE(b_->Advance(9).ok());
  EXPECT_TRUE(reached.has_value());
  EXPECT_EQ(a_->waits() + b_->waits() + timers_.pending(), 0u);
  a_ = std::make_shared<Timeline>("a");
  b_ = std::make_shared<Timeline>("b");
  wait(&failed);
  b_->Fail(absl::InternalError("broken"));
  EXPECT_TRUE(failed.has_value());
  EXPECT_EQ(a_->waits() + b_->waits() + timers_.pending(), 0u);
}

// Each has its continuation taken before the first of them is run.
TEST_F(DispatcherTest, TwoPointsThatFailAtOnceEndTheWaitOnce) {
  std::optional<absl::Status> result;
  dispatcher_.WhenReady({Point{a_, 1}, Point{a_, 2}}, nullptr, kNoDeadline,
                        Into(&result));
  a_->Fail(absl::InternalError("broken"));
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->code(), absl::StatusCode::kInternal);
  EXPECT_EQ(dispatcher_.parked(), 0u);
}

TEST_F(DispatcherTest, LaunchedIsEnoughOnTheSameDevice) {
  auto device = MakeCpuDevice({});
  auto other = MakeCpuDevice({});
  auto timeline = std::make_shared<Timeline>("stream", device.get());
  std::optional<absl::Status> same, elsewhere, host;
  const Point point{timeline, 1};
  dispatcher_.WhenReady({point}, device.get(), kNoDeadline, Into(&same));
  dispatcher_.WhenReady({point}, other.get(), kNoDeadline, Into(&elsewhere));
  timeline->SetLaunched(1);
  EXPECT_EQ(same, absl::OkStatus());
  EXPECT_FALSE(elsewhere.has_value());
  dispatcher_.WhenReady({point}, nullptr, kNoDeadline, Into(&host));
  EXPECT_FALSE(host.has_value());
  std::optional<absl::Status> now;
  dispatcher_.WhenReady({point}, device.get(), kNoDeadline, Into(&now));
  EXPECT_EQ(now, absl::OkStatus());
  ASSERT_TRUE(timeline->Advance(1).ok());
  EXPECT_EQ(elsewhere, absl::OkStatus());
  EXPECT_EQ(host, absl::OkStatus());
}

TEST_F(DispatcherTest, TheDeadlineEndsTheWait) {
  Event done;
  absl::Status result;
  dispatcher_.WhenReady({Point{a_, 1}}, nullptr, NowNanos(),
                        [&](absl::Status status) {
                          result = std::move(status);
                          done.Set();
                        });
  done.Wait();
  EXPECT_EQ(result.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(dispatcher_.parked(), 0u);
  ASSERT_TRUE(a_->Advance(1).ok());
}

TEST_F(DispatcherTest, TheNumberParkedIsBounded) {
  std::optional<absl::Status> results[3];
  for (auto& result : results) {
    dispatcher_.WhenReady({Point{a_, 1}}, nullptr, kNoDeadline, Into(&result));
  }
  EXPECT_FALSE(results[0].has_value());
  EXPECT_FALSE(results[1].has_value());
  ASSERT_TRUE(results[2].has_value());
  EXPECT_EQ(results[2]->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfter(*results[2]).has_value());
  ASSERT_TRUE(a_->Advance(1).ok());
  EXPECT_EQ(results[0], absl::OkStatus());
  EXPECT_EQ(results[1], absl::OkStatus());
}

TEST_F(DispatcherTest, ACancelledWaitLeavesItsPlaceAtOnce) {
  std::optional<absl::Status> result, over;
  const uint64_t wait = dispatcher_.WhenReady({Point{a_, 1}}, nullptr,
                                              kNoDeadline, Into(&result));
  EXPECT_NE(wait, 0u);
  dispatcher_.CancelWait(wait);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(dispatcher_.parked(), 0u);
  dispatcher_.CancelWait(wait);  // over: nothing happens
  ASSERT_TRUE(a_->Advance(1).ok());
  EXPECT_EQ(
      dispatcher_.WhenReady({Point{a_, 1}}, nullptr, kNoDeadline, Into(&over)),
      0u);
  EXPECT_EQ(over, absl::OkStatus());
}

// Whoever cancels it and comes again would leave more each time.
TEST_F(DispatcherTest, AWaitForALaunchUnderWayCountsUntilThat) {
  auto device = MakeCpuDevice({});
  ASSERT_NE(device, nullptr);
  auto stream = std::make_shared<Timeline>("stream", device.get());
  const auto park = [&](uint64_t value) {
    std::optional<absl::Status> result;
    dispatcher_.CancelWait(dispatcher_.WhenReady(
        {Point{a_, value}}, device.get(), kNoDeadline, Into(&result)));
    return result.value_or(absl::UnknownError("it waits")).code();
  };
  std::optional<absl::Status> first;
  const uint64_t wait = dispatcher_.WhenReady({Point{a_, 1}}, device.get(),
                                              kNoDeadline, Into(&first));
  a_->Back(1, {stream, 1});
  dispatcher_.CancelWait(wait);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(dispatcher_.parked(), 0u);
  EXPECT_EQ(park(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(stream->waits(), 2u);
  EXPECT_EQ(park(1), absl::StatusCode::kResourceExhausted);
  stream->SetLaunched(1);
  EXPECT_EQ(stream->waits(), 0u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(park(2), absl::StatusCode::kCancelled);
  }
}

TEST_F(DispatcherTest, CancelAllEndsEveryWait) {
  std::optional<absl::Status> first, second;
  dispatcher_.WhenReady({Point{a_, 1}}, nullptr, kNoDeadline, Into(&first));
  dispatcher_.WhenReady({Point{b_, 1}}, nullptr, kNoDeadline, Into(&second));
  dispatcher_.CancelAll();
  EXPECT_EQ(first->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second->code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(dispatcher_.parked(), 0u);
}

TEST_F(DispatcherTest, ATimelineThatNobodyCanReachEndsTheWait) {
  std::optional<absl::Status> result;
  dispatcher_.WhenReady({Point{a_, 1}}, nullptr, kNoDeadline, Into(&result));
  a_.reset();
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->code(), absl::StatusCode::kCancelled);
}

TEST(DispatcherStressTest, EveryCallEndsExactlyOnce) {
  constexpr uint64_t kCalls = 5000;
  TimerQueue timers;
  Dispatcher dispatcher(&timers, 1 << 20);
  auto a = std::make_shared<Timeline>("a");
  auto b = std::make_shared<Timeline>("b");
  std::vector<std::atomic<int>> ends(kCalls);
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (uint64_t i = 1; i <= kCalls; ++i) {
      const absl::Status status =
          i % 5 == 0 ? absl::InternalError("x") : absl::OkStatus();
      EXPECT_TRUE(a->Advance(i, status).ok());
    }
  });
  threads.emplace_back([&] {
    for (uint64_t i = 1; i <= kCalls; ++i) EXPECT_TRUE(b->Advance(i).ok());
  });
  for (uint64_t i = 0; i < kCalls; ++i) {
    const Nanos deadline = i % 3 == 0 ? NowNanos() + 20'000 : kNoDeadline;
    dispatcher.WhenReady({Point{a, i + 1}, Point{b, i + 1}}, nullptr, deadline,
                         [&ends, i](absl::Status) { ++ends[i]; });
  }
  for (std::thread& thread : threads) thread.join();
  timers.Stop();
  EXPECT_EQ(dispatcher.parked(), 0u);
  for (const auto& end : ends) ASSERT_EQ(end, 1);
}

}  // namespace
}  // namespace weir
