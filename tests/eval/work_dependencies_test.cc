#include "kernels/eval/work_dependencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = InsertedWait::Kind;

// A device whose streams wait for each other, or do not.
class WorkDependenciesTest : public ::testing::TestWithParam<bool> {
 protected:
  WorkDependenciesTest()
      : device_(MakeCpuDevice({.cpu_threads = 1, .streams_wait = GetParam()})),
        stream_(*device_.CreateStream(0)) {}

  WorkDependencies::Points Resolve(std::vector<Point> points,
                                   const Timeline* before = nullptr) {
    report_ = SyncReport();
    return dependencies_.Resolve(
        points, here(),
        [before](const Timeline* timeline) { return timeline == before; },
        &report_);
  }
  // The streams' own one, behind the one that counts.
  const Device& here() const { return *stream_->timeline()->device(); }
  std::vector<Kind> Kinds() const {
    std::vector<Kind> kinds;
    for (const InsertedWait& wait : report_.waits) kinds.push_back(wait.kind);
    return kinds;
  }
  // A value of a host's timeline that stands for a place on the stream.
  Point Backed(uint64_t value) {
    host_->Back(value, OnStream(1));
    stream_->timeline()->SetLaunched(1);
    return {host_, value};
  }
  Point OnStream(uint64_t value) const { return {stream_->timeline(), value}; }

  FaultInjectingDevice device_;
  const std::unique_ptr<Stream> stream_;
  const std::shared_ptr<Timeline> host_ = std::make_shared<Timeline>("host");
  SyncReport report_;
  WorkDependencies dependencies_;
};

INSTANTIATE_TEST_SUITE_P(Devices, WorkDependenciesTest, testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "StreamsWait" : "HostWaits";
                         });

TEST_P(WorkDependenciesTest, WhatIsReachedIsNotWaitedFor) {
  ASSERT_TRUE(host_->Advance(3).ok());
  EXPECT_THAT(Resolve({Point{host_, 3}, Point()}), IsEmpty());
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kNone));
  EXPECT_FALSE(dependencies_.AnyOpen());
  EXPECT_EQ(dependencies_.Outcome(), absl::OkStatus());
}

TEST_P(WorkDependenciesTest, AHostsValueIsReachedBeforeTheLaunch) {
  EXPECT_THAT(Resolve({Point{host_, 1}}), ElementsAre(Point{host_, 1}));
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kHost));
  EXPECT_EQ(dependencies_.Outcome(), std::nullopt);
  ASSERT_TRUE(host_->Advance(1).ok());
  EXPECT_EQ(dependencies_.Outcome(), absl::OkStatus());
  EXPECT_FALSE(dependencies_.AnyOpen());
}

TEST_P(WorkDependenciesTest, WhatIsOnTheDeviceIsWaitedForThere) {
  const Point point = Backed(1);
  const auto pending = Resolve({point});
  if (GetParam()) {
    EXPECT_THAT(pending, IsEmpty());
    EXPECT_THAT(Kinds(), ElementsAre(Kind::kDevice));
  } else {
    EXPECT_THAT(pending, ElementsAre(point));
    EXPECT_THAT(Kinds(), ElementsAre(Kind::kHost));
  }
  EXPECT_TRUE(dependencies_.AnyOpen());
}

TEST_P(WorkDependenciesTest, WhatIsOnTheOwnLaneComesBeforeAnyhow) {
  EXPECT_THAT(Resolve({Backed(1)}, stream_->timeline().get()), IsEmpty());
  EXPECT_THAT(Kinds(), ElementsAre(Kind::kDevice));
  EXPECT_TRUE(dependencies_.AnyOpen());
  EXPECT_FALSE(dependencies_.AnyOpenElsewhere(stream_->timeline().get()));
  const auto before = device_.calls(DeviceCall::kWaitOnDevice);
  EXPECT_EQ(dependencies_.WaitOn(*stream_), absl::OkStatus());
  EXPECT_EQ(device_.calls(DeviceCall::kWaitOnDevice), before)
      << "no stream waits for itself";
}

TEST_P(WorkDependenciesTest, AnotherStreamIsToldToWait) {
  const std::unique_ptr<Stream> other = *device_.CreateStream(0);
  Resolve({Backed(1)}, stream_->timeline().get());
  EXPECT_TRUE(dependencies_.AnyOpenElsewhere(other->timeline().get()));
  const auto before = device_.calls(DeviceCall::kWaitOnDevice);
  device_.Fail(DeviceCall::kWaitOnDevice, absl::InternalError("cannot wait"));
  EXPECT_EQ(dependencies_.WaitOn(*other), absl::InternalError("cannot wait"));
  EXPECT_EQ(device_.calls(DeviceCall::kWaitOnDevice), before + 1);
}

// The wait is in vain, but what it was for is known.
TEST_P(WorkDependenciesTest, AWaitMayFailForWhatIsReachedMeanwhile) {
  const std::unique_ptr<Stream> other = *device_.CreateStream(0);
  Resolve({Backed(1)}, stream_->timeline().get());
  device_.Fail(DeviceCall::kWaitOnDevice, absl::InternalError("cannot wait"));
  auto& hold = device_.HoldCall(DeviceCall::kWaitOnDevice);
  std::thread reached([&] {
    hold.WaitUntilHeld();
    EXPECT_TRUE(stream_->timeline()
                    ->Advance(1, absl::DataLossError("it was bad"))
                    .ok());
    hold.Release();
  });
  EXPECT_EQ(dependencies_.WaitOn(*other), absl::OkStatus());
  reached.join();
  EXPECT_EQ(dependencies_.Outcome()->code(), absl::StatusCode::kDataLoss);
}

// Its producer was launched while it was parked for something else.
TEST_P(WorkDependenciesTest, WhatIsLaunchedMeanwhileIsWaitedForThere) {
  EXPECT_THAT(Resolve({Point{host_, 1}}), ElementsAre(Point{host_, 1}));
  EXPECT_TRUE(dependencies_.AnyOpenElsewhere(stream_->timeline().get()));
  Backed(1);
  dependencies_.Refresh(here());
  EXPECT_FALSE(dependencies_.AnyOpenElsewhere(stream_->timeline().get()));
  EXPECT_TRUE(dependencies_.AnyOpen());
}

TEST_P(WorkDependenciesTest, AFailureIsTheWorksOwnAndNamesThePoint) {
  const auto other = std::make_shared<Timeline>("other");
  Resolve({Point{other, 7}, Point{host_, 1}});
  ASSERT_TRUE(host_->Advance(1, absl::DataLossError("it was bad")).ok());
  const std::optional<absl::Status> outcome = dependencies_.Outcome();
  ASSERT_TRUE(outcome.has_value()) << "whatever the other one will be";
  EXPECT_EQ(*outcome,
            DependsOnFailed("host", 1, absl::DataLossError("it was bad")));
  EXPECT_TRUE(IsInherited(*outcome));
}

// What it stands for on the device may be well, and it has failed by itself.
TEST_P(WorkDependenciesTest,
       APointThatFailedBeforeItsPlaceWasReachedHasFailed) {
  Resolve({Backed(1)}, stream_->timeline().get());
  host_->Fail(absl::CancelledError("nobody wants it"));
  ASSERT_TRUE(stream_->timeline()->Advance(1).ok());
  const std::optional<absl::Status> outcome = dependencies_.Outcome();
  ASSERT_TRUE(outcome.has_value());
  EXPECT_TRUE(absl::IsCancelled(*outcome)) << *outcome;
}

// A timeline remembers not all of its failures, but those that are held.
TEST_P(WorkDependenciesTest, WhatIsHeldIsRemembered) {
  const Point good{host_, 1};
  dependencies_.Hold({&good, 1});
  ASSERT_TRUE(host_->Advance(1).ok());
  for (uint64_t i = 2; i < 1500; ++i) {
    ASSERT_TRUE(host_->Advance(i, absl::InternalError("bad")).ok());
  }
  EXPECT_THAT(Resolve({good}), IsEmpty());
  EXPECT_EQ(dependencies_.Outcome(), absl::OkStatus());
}

}  // namespace
}  // namespace weir
