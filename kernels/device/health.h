// What is wrong with a device, for those who answer for it (server/health.h).
//
// Lost (poisoned): a sticky error cannot be mended inside the process. The
// first one is kept as the root cause, everything later fails with it, and
// whoever watches turns unready and exits.
//
// Stalled: nothing on the device completes although it should have by now
// (completion.h). It passes when something does, or ends in a loss; until
// either, callers should go elsewhere.
//
// Thread-safe; a watch may outlive the latch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"

namespace weir {

class WEIR_EXPORT DeviceHealth {
 public:
  // What hears of a loss or of stalls, for as long as this object lives.
  // Destroying it waits for a call that another thread is in: none begins or
  // goes on afterwards. A callback may destroy its own watch.
  class WEIR_EXPORT Watch {
   public:
    Watch() = default;  // of nothing
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&& other) noexcept;
    ~Watch() { Reset(); }

    void Reset();

   private:
    friend class DeviceHealth;
    struct Watchers;
    Watch(std::shared_ptr<Watchers> watchers, uint64_t id)
        : watchers_(std::move(watchers)), id_(id) {}

    std::shared_ptr<Watchers> watchers_;
    uint64_t id_ = 0;
  };
  using Watcher = absl::AnyInvocable<void(const absl::Status&)>;

  DeviceHealth();

  bool poisoned() const { return poisoned_.load(std::memory_order_acquire); }

  // OK, or UNAVAILABLE with reason DEVICE_POISONED and the root cause.
  absl::Status status() const;

  // Latches the first cause and calls the watchers once, in this thread.
  void Poison(const absl::Status& cause);

  // Calls the watcher once with the root cause; at once if already poisoned.
  [[nodiscard]] Watch OnPoisoned(Watcher watcher);

  // The works that ran on the device when it was lost, each in a few words: one
  // of them is what lost it. For the log, as they may belong to several
  // callers. Set once; empty before, and if nothing ran.
  void NameSuspects(std::vector<std::string> suspects);
  std::vector<std::string> suspects() const;

  // OK, or UNAVAILABLE with reason DEVICE_STALLED, saying for how long nothing
  // completed. What runs goes on, and new work is taken.
  absl::Status stall() const;
  uint64_t stalls_total() const {
    return stalls_total_.load(std::memory_order_relaxed);
  }
  // With a message, the device stands still for that reason; OK: it moves.
  // Calls the watchers with stall(), in this thread. One thread at a time.
  void SetStalled(const absl::Status& why);
  // Calls the watcher at every later change.
  [[nodiscard]] Watch OnStall(Watcher watcher);

 private:
  Atomic<bool> poisoned_{false};
  Atomic<uint64_t> stalls_total_{0};
  mutable Mutex mu_;
  absl::Status stall_ WEIR_GUARDED_BY(mu_);
  std::vector<std::string> suspects_ WEIR_GUARDED_BY(mu_);
  const std::shared_ptr<Watch::Watchers> watchers_;  // of the loss
  const std::shared_ptr<Watch::Watchers> stall_watchers_;
};

// Whether it says that the device is lost (DeviceHealth::status).
WEIR_EXPORT bool IsDeviceLoss(const absl::Status& status);

}  // namespace weir
