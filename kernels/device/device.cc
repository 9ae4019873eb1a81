#include "kernels/device/device.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"

namespace weir {
namespace {

constexpr char kDeviceShort[] = "DEVICE_MEMORY_EXHAUSTED";
constexpr absl::Duration kRetryDevice = absl::Milliseconds(100);
constexpr absl::Duration kRetryHost = absl::Milliseconds(10);

absl::Status Short(absl::Status status, const char* reason,
                   absl::Duration retry) {
  if (!absl::IsResourceExhausted(status)) return status;
  return WithRetryAfter(WithReason(std::move(status), reason), retry);
}

}  // namespace

std::string_view KernelsName(const DeviceInfo& info) {
  switch (info.kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return "";
}

bool ShareKernels(const DeviceInfo& a, const DeviceInfo& b) {
  return a.kind == b.kind;
}

std::string DeviceName(const DeviceInfo& info) {
  std::string name(KernelsName(info));
  if (info.kind == DeviceKind::kCpu && info.ordinal == 0) return name;
  return absl::StrCat(name, ":", info.ordinal);
}

absl::Status ShortOfDeviceMemory(absl::Status status) {
  return Short(std::move(status), kDeviceShort, kRetryDevice);
}

absl::Status ShortOfHostMemory(absl::Status status) {
  return Short(std::move(status), "HOST_MEMORY_EXHAUSTED", kRetryHost);
}

absl::StatusOr<int64_t> Device::QueryFreeMemory() {
  return absl::UnimplementedError(
      absl::StrCat(DeviceName(info_), " does not tell how much is free"));
}

absl::StatusOr<DeviceMemory> Device::Allocate(size_t bytes) {
  WEIR_RETURN_IF_ERROR(health_.status());
  if (bytes == 0) return DeviceMemory();
  // Waiting does not help what can never fit. Some devices do not tell.
  if (info_.total_memory > 0 &&
      bytes > static_cast<size_t>(info_.total_memory)) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "no memory of ", bytes, " bytes: ", DeviceName(info_),
                          " has ", info_.total_memory, " in all")),
                      kDeviceShort);
  }
  if (bytes > quick_bytes()) ExpectMayWait("Device::Allocate");
  const absl::StatusOr<void*> data = AllocateRaw(bytes);
  if (!data.ok()) return ShortOfDeviceMemory(data.status());
  return DeviceMemory(this, *data, bytes);
}

absl::StatusOr<PinnedMemory> Device::AllocatePinned(size_t bytes) {
  WEIR_RETURN_IF_ERROR(health_.status());
  if (bytes == 0) return PinnedMemory();
  if (bytes > quick_bytes()) ExpectMayWait("Device::AllocatePinned");
  const absl::StatusOr<void*> data = AllocatePinnedRaw(bytes);
  if (!data.ok()) return ShortOfHostMemory(data.status());
  return PinnedMemory(this, *data, bytes);
}

}  // namespace weir
