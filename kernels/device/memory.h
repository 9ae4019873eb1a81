// Owners of device and pinned host memory. Move-only; freeing returns the bytes
// to the device at once, so the owner drops them only after the last point that
// uses them was reached.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/base/export.h"

namespace weir {

class Device;

class WEIR_EXPORT DeviceMemory {
 public:
  DeviceMemory() = default;  // empty
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() { Reset(); }

  void* data() const { return data_; }
  size_t size() const { return size_; }
  void Reset();

 private:
  friend class Device;
  DeviceMemory(Device* device, void* data, size_t size)
      : device_(device), data_(data), size_(size) {}

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

class WEIR_EXPORT PinnedMemory {
 public:
  PinnedMemory() = default;  // empty
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory() { Reset(); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }
  void Reset();

 private:
  friend class Device;
  PinnedMemory(Device* device, void* data, size_t size)
      : device_(device), data_(data), size_(size) {}

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weir
