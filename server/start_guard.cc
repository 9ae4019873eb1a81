#include "server/start_guard.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/device/device.h"

namespace weir {

StartGuard::StartGuard(absl::Duration patience, End end)
    : patience_(patience), end_(std::move(end)) {}

DeviceFactory StartGuard::Watch(DeviceFactory make) {
  return [this, make = std::move(make)](std::string_view which,
                                        const DeviceOptions& options,
                                        OpRegistry& ops) {
    absl::StatusOr<std::unique_ptr<Device>> device = make(which, options, ops);
    const std::string flag =
        absl::StrCat("--device=", std::string(which), ": ");
    if (device.ok()) {
      const DeviceHealth& health = (*device)->health();
      watches_.push_back((*device)->health().OnPoisoned(
          [this, flag, &health](const absl::Status&) {
            Lost(Annotate(health.status(), flag));
          }));
    } else if (IsDeviceMissing(device.status())) {
      Lost(Annotate(device.status(), flag));
    }
    return device;
  };
}

void StartGuard::Over() {
  // Waits for a loss that is being told; none is told afterwards.
  watches_.clear();
  const MutexLock lock(&mu_);
  timer_.reset();
}

void StartGuard::Lost(const absl::Status& status) {
  const MutexLock lock(&mu_);
  if (timer_.has_value()) return;
  timer_.emplace("weir-start", patience_, [this, status] { end_(status); });
}

}  // namespace weir
