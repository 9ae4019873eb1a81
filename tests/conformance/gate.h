// Holds a stream for as long as a test wants, with no device code: on the CPU a
// work that waits for the test, on CUDA a wait of the stream for a word in
// pinned memory.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "kernels/device/stream.h"

namespace weir {

class DeviceGate {
 public:
  virtual ~DeviceGate() = default;  // REQUIRES: open, or never used

  // Call inside Launch: neither the rest of the work nor later work of the
  // stream runs until Open. On the CPU it does not return before.
  virtual absl::Status Hold(Stream& stream) = 0;
  virtual void Open() = 0;
};

std::unique_ptr<DeviceGate> MakeGate(Device& device);

}  // namespace weir
