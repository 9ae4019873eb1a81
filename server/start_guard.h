// Bounds a start whose device is lost: what was made of it is taken apart
// before the start has failed, and calls of a dead driver may never return.
// Used and destroyed by the thread that starts; losses come from any.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/backend/devices.h"
#include "kernels/base/mutex.h"
#include "kernels/base/periodic_thread.h"
#include "kernels/device/health.h"

namespace weir {

class StartGuard {
 public:
  // `end` is to end the process. It is called in a thread of its own with the
  // first loss, `patience` after that; not once the start is over.
  using End = std::function<void(const absl::Status&)>;
  StartGuard(absl::Duration patience, End end);
  ~StartGuard() { Over(); }
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

  // Makes what `make` makes, and hears of devices that are lost or missing.
  // To be called before the start is over.
  DeviceFactory Watch(DeviceFactory make);

  // The start has failed, or what is lost is told otherwise. Waits for `end` if
  // that was called.
  void Over();

 private:
  void Lost(const absl::Status& status);

  const absl::Duration patience_;
  const End end_;
  std::vector<DeviceHealth::Watch> watches_;
  Mutex mu_;
  std::optional<PeriodicThread> timer_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
