// The poisoned-device latch. A sticky device error cannot be mended inside the
// process: the first one is kept as the root cause, everything later fails with
// it, and whoever watches (server/server.cc) turns unready and exits.
// Thread-safe; a watch may outlive the latch.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "kernels/base/export.h"

namespace weir {

class WEIR_EXPORT DeviceHealth {
 public:
  // What hears of the loss, for as long as this object lives. Destroying it
  // waits for a call that another thread is in: none begins or goes on
  // afterwards. A callback may destroy its own watch.
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

 private:
  std::atomic<bool> poisoned_{false};
  const std::shared_ptr<Watch::Watchers> watchers_;
};

}  // namespace weir
