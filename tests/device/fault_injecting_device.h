// Wraps any device and fails or delays chosen calls. Calls are counted per kind
// from the time a rule is set. Thread-safe. The timelines of its streams name
// the wrapped device, so that points count as another device's.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/device/device.h"
#include "tests/base/event.h"

namespace weir {

enum class DeviceCall : size_t {
  kCreateStream,
  kAllocate,
  kAllocatePinned,
  kLaunch,
  kCopy,  // all three, and Fill
  kWaitOnDevice,
  kCheck,
  kSynchronize,
  kQueryFreeMemory,
  kEnqueue,  // in the thread that launches
  kWaitForRoom,
  kFree,  // of the device's memory; cannot fail
};
inline constexpr size_t kDeviceCalls = 12;

class FaultInjectingDevice final : public Device {
 public:
  explicit FaultInjectingDevice(std::unique_ptr<Device> device);
  ~FaultInjectingDevice() override;

  // The calls number `nth` to `nth + count - 1` from now on fail; the wrapped
  // device does not see them.
  void Fail(DeviceCall call, absl::Status status, uint64_t nth = 1,
            uint64_t count = 1);

  // A call that waits, once it has arrived, until it is released.
  class Hold {
   public:
    void WaitUntilHeld() { arrived_.Wait(); }
    // Whose call it is, once it is held.
    std::thread::id thread() const { return thread_; }
    void Release() { released_.Set(); }

   private:
    friend class FaultInjectingDevice;
    std::thread::id thread_;
    Event arrived_;
    Event released_;
  };
  // Lives as long as the device.
  Hold& HoldCall(DeviceCall call, uint64_t nth = 1);

  uint64_t calls(DeviceCall call) const;

  // What a stream was told of the task that it launched last.
  struct Launched {
    Nanos expected = 0;
    Nanos expected_device_time = 0;
    std::string description;
  };
  Launched last_launched() const;
  // Who freed memory of the device last; no thread's id before that.
  std::thread::id freed_on() const;
  // Bytes of both kinds of memory that a thread has freed.
  size_t freed_by(std::thread::id thread) const;
  void NoteLaunch(const StreamTask& task);

  // Counts a call and applies its rules.
  absl::Status Pass(DeviceCall call);

  Device& backend() override { return device_->backend(); }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int priority) override;
  bool host_addressable() const override {
    return !takes_copies_ && device_->host_addressable();
  }
  bool streams_wait() const override { return device_->streams_wait(); }
  // As if it did not read the host's memory. Before the device is used.
  void set_takes_copies() { takes_copies_ = true; }
  bool loads_late() const override {
    return loads_late_ || device_->loads_late();
  }
  void set_loads_late() { loads_late_ = true; }
  size_t quick_bytes() const override {
    return allocation_waits_ ? 0 : device_->quick_bytes();
  }
  // As if whatever takes or frees something, or asks, waited for a driver, and
  // a work was launched by whoever enqueues it, wherever it runs.
  // Before the device is used.
  void set_allocation_waits() { allocation_waits_ = true; }
  bool allocation_waits() const { return allocation_waits_; }
  // Of such a device: the calling thread is expected to be one that may wait.
  void ExpectToWait(const char* call) const;
  CpuTeam* cpu_team() override { return device_->cpu_team(); }
  bool TrimOne(Nanos before) override { return device_->TrimOne(before); }
  absl::StatusOr<int64_t> QueryFreeMemory() override;
  std::optional<KernelCacheStats> kernel_cache_stats() const override {
    return device_->kernel_cache_stats();
  }
  absl::Status Synchronize() override;

 private:
  struct Rule {
    DeviceCall call;
    uint64_t first;
    uint64_t last;
    absl::Status status;
    Hold* hold;
  };

  absl::StatusOr<void*> AllocateRaw(size_t bytes) override;
  void FreeRaw(void* data, size_t bytes) override;
  absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) override;
  void FreePinnedRaw(void* data, size_t bytes) override;

  const std::unique_ptr<Device> device_;
  bool allocation_waits_ = false;
  bool takes_copies_ = false;
  bool loads_late_ = false;
  DeviceHealth::Watch inner_lost_;
  DeviceHealth::Watch outer_lost_;
  mutable Mutex mu_;
  std::array<uint64_t, kDeviceCalls> calls_ WEIR_GUARDED_BY(mu_) = {};
  std::vector<Rule> rules_ WEIR_GUARDED_BY(mu_);
  std::list<Hold> holds_ WEIR_GUARDED_BY(mu_);
  Launched last_launched_ WEIR_GUARDED_BY(mu_);
  std::thread::id freed_on_ WEIR_GUARDED_BY(mu_);
  std::map<std::thread::id, size_t> freed_by_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
