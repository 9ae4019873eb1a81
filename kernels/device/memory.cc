#include "kernels/device/memory.h"

#include "kernels/base/thread_role.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

// A lost device is told nothing any more.
void ExpectToFree(Device& device, size_t bytes, const char* call) {
  if (bytes > device.quick_bytes() && !device.health().poisoned()) {
    ExpectMayWait(call);
  }
}

}  // namespace

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this != &other) {
    Reset();
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void DeviceMemory::Reset() {
  if (data_ != nullptr) {
    ExpectToFree(*device_, size_, "freeing DeviceMemory");
    device_->FreeRaw(data_, size_);
  }
  device_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  if (this != &other) {
    Reset();
    device_ = std::exchange(other.device_, nullptr);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void PinnedMemory::Reset() {
  if (data_ != nullptr) {
    ExpectToFree(*device_, size_, "freeing PinnedMemory");
    device_->FreePinnedRaw(data_, size_);
  }
  device_ = nullptr;
  data_ = nullptr;
  size_ = 0;
}

}  // namespace weir
