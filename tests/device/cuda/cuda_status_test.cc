// What callers are told of the driver's errors. Needs no GPU.
#include "kernels/device/cuda/cuda_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/base/error_info.h"
#include "kernels/device/health.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

TEST(CudaStatusTest, ACallIsBlamedForItsOwnErrors) {
  const absl::Status status =
      CudaStatus(cudaErrorInvalidValue, "cudaMemcpyAsync(dst, src, 4)");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(status), StartsWith("cudaMemcpyAsync: "));
  EXPECT_FALSE(IsDeviceFault(status));
  EXPECT_EQ(CudaStatus(cudaErrorMemoryAllocation, "cudaMalloc").code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(CudaStatusTest, AFaultBelongsToNoCall) {
  const absl::Status status =
      CudaStatus(cudaErrorIllegalAddress, "cudaFreeHost(data)");
  EXPECT_TRUE(IsDeviceFault(status));
  EXPECT_EQ(Message(status),
            "CUDA error 700 cudaErrorIllegalAddress: an illegal memory access "
            "was encountered (seen by cudaFreeHost)");
  EXPECT_THAT(Metadata(status),
              IsSupersetOf(ReasonMetadata{
                  {"code", "700"}, {"name", "cudaErrorIllegalAddress"}}));
  // The same from the driver.
  EXPECT_EQ(Message(CudaStatus(CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamQuery")),
            "CUDA error 700 cudaErrorIllegalAddress: an illegal memory access "
            "was encountered (seen by cuStreamQuery)");
}

// Only where a device is taken hold of: later the same is an error of the call.
TEST(CudaStatusTest, AtTheStartADeviceThatIsNotToBeHadIsAFault) {
  for (const cudaError_t error :
       {cudaErrorInitializationError, cudaErrorNoDevice, cudaErrorInvalidDevice,
        cudaErrorSystemNotReady}) {
    const absl::Status status = CudaStartStatus(error, "cudaInitDevice(0)");
    EXPECT_TRUE(IsDeviceFault(status)) << status;
    EXPECT_EQ(Message(status), Message(CudaStatus(error, "cudaInitDevice(0)")));
    EXPECT_THAT(Metadata(status),
                IsSupersetOf(ReasonMetadata{
                    {"code", std::to_string(static_cast<int>(error))}}));
    EXPECT_FALSE(IsDeviceFault(CudaStatus(error, "cudaInitDevice(0)")));
  }
  EXPECT_TRUE(CudaStartStatus(cudaSuccess, "cudaInitDevice(0)").ok());
  EXPECT_TRUE(IsDeviceFault(CudaStartStatus(cudaErrorUnknown, "x")));
  // Of what is installed.
  EXPECT_EQ(CudaStartStatus(cudaErrorCallRequiresNewerDriver, "x").code(),
            absl::StatusCode::kInternal);
}

TEST(CudaStatusTest, CallersAreToldOfTheFault) {
  DeviceHealth health;
  health.Poison(CudaStatus(cudaErrorLaunchFailure, "cudaHostAlloc(&data, 4)"));
  EXPECT_THAT(Message(health.status()),
              StartsWith("the device is lost: CUDA error 719 "
                         "cudaErrorLaunchFailure: "));
}

}  // namespace
}  // namespace weir
