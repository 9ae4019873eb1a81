// The poisoned-device latch. A sticky device error cannot be mended inside the
// process: the first one is kept as the root cause, everything later fails with
// it, and whoever watches (server/server.cc) turns unready and exits.
// Thread-safe.
#pragma once

#include <atomic>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"

namespace weir {

class WEIR_EXPORT DeviceHealth {
 public:
  bool poisoned() const { return poisoned_.load(std::memory_order_acquire); }

  // OK, or UNAVAILABLE with reason DEVICE_POISONED and the root cause.
  absl::Status status() const;

  // Latches the first cause and calls the watchers once, in this thread.
  void Poison(const absl::Status& cause);

  // Called once with the root cause; at once if already poisoned.
  void OnPoisoned(absl::AnyInvocable<void(const absl::Status&)> watcher);

 private:
  std::atomic<bool> poisoned_{false};
  mutable Mutex mu_;
  absl::Status cause_ WEIR_GUARDED_BY(mu_);
  std::vector<absl::AnyInvocable<void(const absl::Status&)>> watchers_
      WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
