// Puts constants into one block of device memory, through a stream of its own.
// Waits for the copies: for compile threads only. Internal to this layer.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "kernels/device/memory.h"
#include "kernels/ops/op.h"

namespace weir {

struct ConstantBlock {
  // Where each constant lies on the device, in the order given.
  std::vector<const void*> addresses;
  size_t bytes = 0;
  DeviceMemory memory;
  // Constants that are used where they lie.
  std::vector<std::shared_ptr<const Constant>> in_place;
};

// On a device that reads host memory a constant that is aligned (64 bytes) and
// owned stays where it is.
absl::StatusOr<ConstantBlock> UploadConstants(
    Device& device,
    const std::vector<std::shared_ptr<const Constant>>& constants);

}  // namespace weir
