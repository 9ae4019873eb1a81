// Makes the devices that a process asks for by name: "auto", "cpu", "cuda" or
// "cuda:N". The CUDA backend is libweir_cuda.so, looked for beside libweir.so,
// opened once and never closed; its build id must match.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/device/device.h"
#include "kernels/device/device_options.h"
#include "kernels/ops/registry.h"

namespace weir {

// A CPU device always exists. UNAVAILABLE with reason NO_CUDA_DEVICE (no driver
// or no GPU) is the only error after which "auto" takes the CPU; a device that
// is there but cannot be used is FAILED_PRECONDITION and names both versions.
// CUDA kernels register themselves into `ops`, which must outlive the device;
// further devices share those that are there. Not at the same time as another
// call for the same `ops`, nor while programs are compiled with it.
WEIR_EXPORT absl::StatusOr<std::unique_ptr<Device>> MakeDevice(
    std::string_view which, const DeviceOptions& options, OpRegistry& ops);

// Whether something was not made because a device is not there, or is there and
// every call of it fails: what another machine, or a reset, would mend. The one
// place that says which statuses mean that.
WEIR_EXPORT bool IsDeviceMissing(const absl::Status& status);

WEIR_EXPORT std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options);

// A hash of what the build was made of (cmake/build_id.py); the CUDA backend
// and weir-server must carry the same.
WEIR_EXPORT std::string_view BuildId();

using DeviceFactory = std::function<decltype(MakeDevice)>;

}  // namespace weir
