#include "server/observe/memory_sampler.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "kernels/backend/devices.h"
#include "tests/base/eventually.h"
#include "tests/device/fault_injecting_device.h"

namespace weir {
namespace {

constexpr absl::Duration kNever = absl::Hours(24);

class MemorySamplerTest : public ::testing::Test {
 protected:
  FaultInjectingDevice device_{MakeCpuDevice({.cpu_threads = 1})};
};

TEST_F(MemorySamplerTest, KnowsAtOnceAndEndsAtOnce) {
  const MemorySampler sampler(&device_, kNever, kNever);
  EXPECT_GT(sampler.free_bytes(), 0);
  EXPECT_LE(sampler.free_bytes(), device_.info().total_memory);
  EXPECT_EQ(device_.calls(DeviceCall::kQueryFreeMemory), 1u);
}

// A driver that is busy with something else holds up the sampler, and nobody
// who reads.
TEST_F(MemorySamplerTest, ReadersDoNotWaitForTheDevice) {
  FaultInjectingDevice::Hold& hold =
      device_.HoldCall(DeviceCall::kQueryFreeMemory, 2);
  const MemorySampler sampler(&device_, absl::ZeroDuration(), kNever);
  hold.WaitUntilHeld();
  EXPECT_GT(sampler.free_bytes(), 0);
  hold.Release();
}

// What it said before it hung is no answer of now.
TEST_F(MemorySamplerTest, IsUnknownOnceTheDeviceHangs) {
  FaultInjectingDevice::Hold& hold =
      device_.HoldCall(DeviceCall::kQueryFreeMemory, 2);
  const MemorySampler sampler(&device_, absl::ZeroDuration(),
                              absl::Milliseconds(50));
  hold.WaitUntilHeld();
  EXPECT_TRUE(testing::Eventually([&] { return !sampler.free_bytes(); }));
  hold.Release();
  EXPECT_TRUE(testing::Eventually([&] { return sampler.free_bytes() > 0; }));
}

TEST_F(MemorySamplerTest, IsUnknownWhileTheDeviceDoesNotAnswer) {
  device_.Fail(DeviceCall::kQueryFreeMemory, absl::UnavailableError("lost"));
  FaultInjectingDevice::Hold& hold =
      device_.HoldCall(DeviceCall::kQueryFreeMemory, 2);
  const MemorySampler sampler(&device_, absl::ZeroDuration(), kNever);
  hold.WaitUntilHeld();
  EXPECT_EQ(sampler.free_bytes(), std::nullopt);
  hold.Release();
  EXPECT_TRUE(testing::Eventually([&] { return sampler.free_bytes() > 0; }));
}

TEST_F(MemorySamplerTest, OfALostDeviceNothingIsKnown) {
  device_.Fail(DeviceCall::kQueryFreeMemory, absl::UnavailableError("lost"), 2,
               1'000'000'000);
  const MemorySampler sampler(&device_, absl::ZeroDuration(), kNever);
  EXPECT_TRUE(testing::Eventually([&] { return !sampler.free_bytes(); }));
}

}  // namespace
}  // namespace weir
