// Makes the devices that a process asks for by name: "auto", "cpu", "cuda" or
// "cuda:N". The CUDA backend is libweir_cuda.so, looked for beside libweir.so,
// opened once and never closed; its build id must match.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/device/device.h"

namespace weir {

class OpRegistry;

struct DeviceOptions {
  int cpu_threads = 0;  // 0: from the cgroup's CPU quota, else the cores
  // Of compiled kernels (cubin); empty: in memory only.
  std::string cache_dir = "";
  // Of the host's memory, for what a GPU's works compute there (decoders); 0:
  // an eighth of it.
  size_t host_scratch_bytes = 0;
  // For tests of what works do on a GPU: Device::streams_wait of a CPU device.
  bool streams_wait = false;
  // For tests of several devices: that of a CPU device, which is another one's
  // as far as anybody can tell.
  int cpu_ordinal = 0;
  // Told what happens to the device, in a line for the debug log, on threads of
  // the device's own.
  std::function<void(std::string_view)> note = nullptr;
};

// A CPU device always exists. UNAVAILABLE with reason NO_CUDA_DEVICE (no driver
// or no GPU) is the only error after which "auto" takes the CPU; a device that
// is there but cannot be used is FAILED_PRECONDITION and names both versions.
// CUDA kernels register themselves into `ops`, which must outlive the device;
// further devices share those that are there. Not at the same time as another
// call for the same `ops`, nor while programs are compiled with it.
WEIR_EXPORT absl::StatusOr<std::unique_ptr<Device>> MakeDevice(
    std::string_view which, const DeviceOptions& options, OpRegistry& ops);

WEIR_EXPORT std::unique_ptr<Device> MakeCpuDevice(const DeviceOptions& options);

// Changes with every build; the CUDA backend must carry the same.
WEIR_EXPORT std::string_view BuildId();

using DeviceFactory = std::function<decltype(MakeDevice)>;

}  // namespace weir
