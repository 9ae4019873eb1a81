// A device whose work is done by logical threads, one for each stream: it has
// the CUDA backend's shape (a launch only queues; completion records, read by
// the tree's own CompletionMonitor; waits on the device; a driver that is
// asked), and when anything happens on it is the scheduler's choice. Kernels
// are closures that run on the stream's thread. Memory that is new holds
// nonsense, and what is freed is watched until the device goes.
//
// It fails on demand: see DeviceFaults. A run ends with a failure if memory is
// left when the device goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "kernels/device/completion.h"
#include "kernels/device/device.h"

namespace weir::sim {

// Which call fails, counted from 1 since the device was made; 0: none does.
struct DeviceFaults {
  int allocation = 0;
  int pinned_allocation = 0;
  int stream = 0;     // CreateStream
  int copy = 0;       // any of a launch's copies: the launch fails
  int operation = 0;  // of all on the device: it is lost before this one
  // Ask it for memory and every thread may wait (Device::quick_bytes).
  bool slow_memory = false;
};

class SimDevice final : public Device {
 public:
  explicit SimDevice(const DeviceFaults& faults = {});
  ~SimDevice() override;  // REQUIRES: its streams are gone

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int priority) override;
  bool host_addressable() const override { return false; }
  size_t quick_bytes() const override {
    return faults_.slow_memory ? 0 : Device::quick_bytes();
  }
  absl::Status Synchronize() override { return health_.status(); }

  // It is lost before its `nth` operation from now on.
  void LoseAt(int nth) { until_lost_.store(nth); }

  // Nothing that was queued on the stream is left. For looks from outside.
  bool IsIdle(uint64_t stream) const;
  CompletionMonitor& monitor() { return *monitor_; }

 private:
  friend class SimStream;

  // What a stream's queue and record are to the device; the stream may be gone.
  struct Queue;

  absl::StatusOr<void*> Take(size_t bytes);
  void Give(void* data, size_t bytes);
  absl::StatusOr<void*> AllocateRaw(size_t bytes) override;
  void FreeRaw(void* data, size_t bytes) override { Give(data, bytes); }
  absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) override;
  void FreePinnedRaw(void* data, size_t bytes) override { Give(data, bytes); }
  absl::Status FailCopy();
  // What the driver answers, which may take its time.
  absl::Status Query();
  // Before each operation. False: the device is lost.
  bool GoesOn();
  void RunStream(Queue& queue);
  std::shared_ptr<Queue> QueueOf(uint64_t stream) const;

  const DeviceFaults faults_;
  // Whose turn it is to fail is a matter of order: who comes to a call first
  // is seen.
  Atomic<int> allocations_{0}, pinned_allocations_{0}, copies_{0};
  Atomic<uint64_t> streams_{0};
  Atomic<int> until_lost_;  // operations; 0: it is not going to be
  Atomic<bool> lost_{false};
  mutable Mutex mu_;
  std::map<uint64_t, std::shared_ptr<Queue>> queues_ WEIR_GUARDED_BY(mu_);
  int64_t blocks_ = 0;
  std::vector<std::pair<void*, size_t>> freed_;
  std::unique_ptr<CompletionMonitor> monitor_;
};

class SimStream final : public Stream {
 public:
  ~SimStream() override;

  Device& device() const override { return *device_; }
  uint64_t id() const override { return id_; }
  int priority() const override { return 0; }

  using Stream::Enqueue;
  uint64_t Enqueue(StreamTask* task, Inline inline_run) override;

  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyOnDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status Fill(void* dst, uint8_t value, size_t bytes) override;
  absl::Status WaitOnDevice(const Point& point) override;
  FaultSlot* fault_slot() override;

  // For kernels: `run` happens in the stream's order.
  void Launch(std::function<void()> run);

 private:
  friend class SimDevice;
  SimStream(SimDevice* device, std::shared_ptr<Timeline> timeline, uint64_t id);
  absl::Status Issue(StreamTask* task, uint64_t sequence);
  // Null: waits for the other one's record.
  void Add(std::function<void()> run,
           std::shared_ptr<SimDevice::Queue> other = nullptr,
           uint64_t value = 0);

  SimDevice* const device_;
  const uint64_t id_;
  const std::shared_ptr<SimDevice::Queue> queue_;
  const std::shared_ptr<MonitoredStream> monitored_;
};

}  // namespace weir::sim
