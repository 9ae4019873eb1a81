#include "kernels/device/health.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {

absl::Status DeviceHealth::status() const {
  if (!poisoned()) return absl::OkStatus();
  MutexLock lock(&mu_);
  return WithReason(absl::UnavailableError(
                        absl::StrCat("the device is lost: ", cause_.message())),
                    "DEVICE_POISONED",
                    {{"cause_code", absl::StatusCodeToString(cause_.code())},
                     {"cause", std::string(cause_.message())}});
}

void DeviceHealth::Poison(const absl::Status& cause) {
  std::vector<absl::AnyInvocable<void(const absl::Status&)>> watchers;
  const absl::Status root =
      cause.ok() ? absl::UnknownError("unknown cause") : cause;
  {
    MutexLock lock(&mu_);
    if (poisoned_.load(std::memory_order_relaxed)) return;
    cause_ = root;
    poisoned_.store(true, std::memory_order_release);
    watchers.swap(watchers_);
  }
  for (auto& watcher : watchers) watcher(root);
}

void DeviceHealth::OnPoisoned(
    absl::AnyInvocable<void(const absl::Status&)> watcher) {
  absl::Status cause;
  {
    MutexLock lock(&mu_);
    if (!poisoned_.load(std::memory_order_relaxed)) {
      watchers_.push_back(std::move(watcher));
      return;
    }
    cause = cause_;
  }
  watcher(cause);
}

}  // namespace weir
