// The suites that every device passes. A device joins with one entry in
// WEIR_CONFORMANCE_DEVICES. Where a device does not exist (UNAVAILABLE, reason
// NO_CUDA_DEVICE) its tests are skipped with the reason; any other error fails
// them, so that a broken driver never looks like a missing one.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "kernels/device/stream.h"
#include "tests/conformance/gate.h"
#include "tests/device/test_task.h"

namespace weir {

class DeviceConformance : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override;

  // One per process and kind.
  Device& device() { return *device_; }
  // For tests that harm it.
  static absl::StatusOr<std::unique_ptr<Device>> MakeAnother();

  std::unique_ptr<Stream> MakeStream(int priority = 0);
  std::unique_ptr<DeviceGate> MakeDeviceGate() { return MakeGate(device()); }

  // Runs `launch` on `stream` and waits for its end.
  absl::Status RunOn(Stream& stream, TestTask::LaunchFunction launch);

 private:
  Device* device_ = nullptr;
};

#define WEIR_CONFORMANCE_DEVICES ::testing::Values("cpu", "cuda:0")

#define WEIR_INSTANTIATE_CONFORMANCE(Suite)                   \
  INSTANTIATE_TEST_SUITE_P(                                   \
      Devices, Suite, WEIR_CONFORMANCE_DEVICES,               \
      [](const ::testing::TestParamInfo<const char*>& test) { \
        return std::string(test.param).substr(0, 4) == "cuda" \
                   ? std::string("Cuda")                      \
                   : std::string("Cpu");                      \
      })

}  // namespace weir
