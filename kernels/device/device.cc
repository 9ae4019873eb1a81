#include "kernels/device/device.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir {

std::string DeviceName(const DeviceInfo& info) {
  if (info.kind == DeviceKind::kCpu) return "cpu";
  return absl::StrCat("cuda:", info.ordinal);
}

absl::StatusOr<int64_t> Device::QueryFreeMemory() {
  return absl::UnimplementedError(
      absl::StrCat(DeviceName(info_), " does not tell how much is free"));
}

absl::StatusOr<DeviceMemory> Device::Allocate(size_t bytes) {
  WEIR_RETURN_IF_ERROR(health_.status());
  if (bytes == 0) return DeviceMemory();
  WEIR_ASSIGN_OR_RETURN(void* data, AllocateRaw(bytes));
  return DeviceMemory(this, data, bytes);
}

absl::StatusOr<PinnedMemory> Device::AllocatePinned(size_t bytes) {
  WEIR_RETURN_IF_ERROR(health_.status());
  if (bytes == 0) return PinnedMemory();
  WEIR_ASSIGN_OR_RETURN(void* data, AllocatePinnedRaw(bytes));
  return PinnedMemory(this, data, bytes);
}

}  // namespace weir
