#include "tests/device/fault_injecting_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "kernels/backend/devices.h"
#include "tests/device/test_task.h"

namespace weir {
namespace {

class FaultInjectingDeviceTest : public ::testing::Test {
 protected:
  FaultInjectingDevice device_{
      MakeCpuDevice({.cpu_threads = 2, .cache_dir = {}})};
};

TEST_F(FaultInjectingDeviceTest, FailsTheChosenCallsOnly) {
  device_.Fail(DeviceCall::kCreateStream, absl::InternalError("x"), 2, 2);
  EXPECT_TRUE(device_.CreateStream(0).ok());
  EXPECT_EQ(device_.CreateStream(0).status(), absl::InternalError("x"));
  EXPECT_EQ(device_.CreateStream(0).status(), absl::InternalError("x"));
  EXPECT_TRUE(device_.CreateStream(0).ok());
  EXPECT_EQ(device_.calls(DeviceCall::kCreateStream), 4u);
  device_.Fail(DeviceCall::kAllocate, absl::ResourceExhaustedError("y"));
  EXPECT_FALSE(device_.Allocate(64).ok());
  EXPECT_TRUE(device_.Allocate(64).ok());
}

TEST_F(FaultInjectingDeviceTest, AFailedLaunchFailsItsWork) {
  auto stream = *device_.CreateStream(0);
  device_.Fail(DeviceCall::kLaunch, absl::InternalError("no"), 2);
  TestTask first, second, third;
  stream->Enqueue(&first);
  stream->Enqueue(&second);
  stream->Enqueue(&third);
  EXPECT_TRUE(first.Wait().status.ok());
  EXPECT_EQ(second.Wait().status, absl::InternalError("no"));
  EXPECT_EQ(second.launches(), 0);
  EXPECT_TRUE(third.Wait().status.ok());
  EXPECT_TRUE(stream->idle());
  EXPECT_EQ(third.Wait().sequence, 3u);
}

TEST_F(FaultInjectingDeviceTest, CopiesInsideAWorkFailToo) {
  auto stream = *device_.CreateStream(0);
  auto memory = *device_.Allocate(16);
  device_.Fail(DeviceCall::kCopy, absl::DataLossError("bus"));
  TestTask task([&](Stream& s) {
    EXPECT_EQ(&s, stream.get());
    EXPECT_EQ(&s.device(), &device_);
    return s.Fill(memory.data(), 0, 16);
  });
  stream->Enqueue(&task);
  EXPECT_EQ(task.Wait().status, absl::DataLossError("bus"));
}

TEST_F(FaultInjectingDeviceTest, AHeldCallWaitsForItsRelease) {
  auto stream = *device_.CreateStream(0);
  auto& hold = device_.HoldCall(DeviceCall::kLaunch);
  TestTask task;
  stream->Enqueue(&task);
  hold.WaitUntilHeld();
  EXPECT_FALSE(stream->idle());
  EXPECT_FALSE(task.finished());
  hold.Release();
  EXPECT_TRUE(task.Wait().status.ok());
}

TEST_F(FaultInjectingDeviceTest, PoisonIsSeenOnBothSides) {
  auto stream = *device_.CreateStream(0);
  device_.health().Poison(absl::InternalError("gone"));
  TestTask task;
  stream->Enqueue(&task);
  EXPECT_EQ(task.Wait().status, device_.health().status());
  EXPECT_EQ(task.launches(), 0);
}

}  // namespace
}  // namespace weir
