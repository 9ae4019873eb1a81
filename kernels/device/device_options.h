// What devices are made with; plain data.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace weir {

struct DeviceOptions {
  int cpu_threads = 0;  // 0: from the cgroup's CPU quota, else the cores
  // Of compiled kernels (cubin); empty: in memory only.
  std::string cache_dir = "";
  // Of the host's memory, for what a GPU's works compute there (decoders); 0:
  // an eighth of it.
  size_t host_scratch_bytes = 0;
  const char* host_scratch_name = "host_scratch_bytes";  // in errors
  // For tests of what works do on a GPU: Device::streams_wait of a CPU device.
  bool streams_wait = false;
  // For tests of several devices: that of a CPU device, which is another one's
  // as far as anybody can tell.
  int cpu_ordinal = 0;
  // Told what happens to the device, in a line for the debug log, on threads of
  // the device's own.
  std::function<void(std::string_view)> note = nullptr;
};

}  // namespace weir
