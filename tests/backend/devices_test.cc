#include "kernels/backend/devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/base/error_info.h"
#include "kernels/device/cuda_name.h"
#include "kernels/device/health.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

TEST(DevicesTest, MakesTheCpu) {
  OpRegistry ops;
  auto device = MakeDevice("cpu", {}, ops);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->info().kind, DeviceKind::kCpu);
}

TEST(DevicesTest, RefusesWhatIsNoDevice) {
  OpRegistry ops;
  for (const char* which : {"", "CPU", "gpu", "cuda:", "cuda:x", "cuda:-1",
                            "cuda:1x", "cuda:99999", "cuda:all", "cpu:0"}) {
    const absl::Status status = MakeDevice(which, {}, ops).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << which;
    EXPECT_EQ(Field(status), "device");
  }
}

TEST(DevicesTest, TheFirstGpuNeedsNoNumber) {
  EXPECT_EQ(CudaOrdinal("cuda"), 0);
  EXPECT_EQ(CudaOrdinal("cuda:0"), 0);
  EXPECT_EQ(CudaOrdinal("cuda:07"), 7);
  EXPECT_EQ(CudaOrdinal("cuda:9999"), 9999);
  for (const char* other :
       {"", "cpu", "auto", "7", "cuda:", "cuda7", "cuda:10000", "cuda:00001",
        "cuda:-1", "cuda:+1", "cuda: 1", "cuda:1 ", "cuda:1,2", "CUDA:1"}) {
    EXPECT_EQ(CudaOrdinal(other), std::nullopt) << other;
  }
}

TEST(DevicesTest, WithoutAnNvidiaDeviceAutoTakesTheCpu) {
  const auto registry = MakeOpRegistry();
  OpRegistry& ops = *registry;
  const auto cuda = MakeDevice("cuda", {}, ops);
  if (cuda.ok() || access("/dev/nvidiactl", F_OK) == 0) {
    GTEST_SKIP() << "there is an NVIDIA device";
  }
  EXPECT_EQ(cuda.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Reason(cuda.status()), "NO_CUDA_DEVICE");
  EXPECT_TRUE(IsDeviceMissing(cuda.status()));
  EXPECT_EQ(Reason(MakeDevice("cuda:3", {}, ops).status()), "NO_CUDA_DEVICE");
  auto automatic = MakeDevice("auto", {}, ops);
  ASSERT_TRUE(automatic.ok());
  EXPECT_EQ((*automatic)->info().kind, DeviceKind::kCpu);
}

TEST(DevicesTest, ADeviceThatIsRefusedIsNotMissing) {
  EXPECT_TRUE(IsDeviceMissing(
      WithReason(absl::UnavailableError("a reset failed"), "DEVICE_FAULT")));
  EXPECT_TRUE(IsDeviceMissing(WithReason(
      absl::InvalidArgumentError("one GPU fewer"), "NO_SUCH_CUDA_DEVICE")));
  DeviceHealth lost;
  lost.Poison(absl::UnavailableError("an illegal address"));
  EXPECT_TRUE(IsDeviceMissing(Annotate(lost.status(), "--device=cuda: ")));
  EXPECT_FALSE(IsDeviceMissing(WithReason(
      absl::FailedPreconditionError("no library"), "CUDA_BACKEND_MISSING")));
  EXPECT_FALSE(IsDeviceMissing(absl::FailedPreconditionError("too old")));
  EXPECT_FALSE(IsDeviceMissing(absl::OkStatus()));
}

// Names and UUIDs tell devices apart.
TEST(DevicesTest, AnotherCpuIsAnotherDevice) {
  const auto one = MakeCpuDevice({.cpu_threads = 1});
  const auto other = MakeCpuDevice({.cpu_threads = 1, .cpu_ordinal = 1});
  EXPECT_EQ(DeviceName(one->info()), "cpu");
  EXPECT_EQ(DeviceName(other->info()), "cpu:1");
  EXPECT_NE(one->info().uuid, other->info().uuid);
  EXPECT_EQ(other->info().ordinal, 1);
}

TEST(DevicesTest, TheBuildHasAnId) { EXPECT_FALSE(BuildId().empty()); }

}  // namespace
}  // namespace weir
