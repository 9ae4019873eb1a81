// A stream of the CPU device: a strand on its worker pool. Works run one after
// another, each on whatever worker is free, or in the thread that enqueues if
// it asks and the strand is empty.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/device/cpu/worker_pool.h"
#include "kernels/device/health.h"
#include "kernels/device/stream.h"

namespace weir {

class CpuDevice;
class CpuStream;

// The queue of one stream. Outlives the stream, which may be destroyed once its
// timeline has reached the last work, while that work's Complete still runs.
class CpuStrand final : public WorkerPool::Job,
                        public std::enable_shared_from_this<CpuStrand> {
 public:
  CpuStrand(WorkerPool* workers, const DeviceHealth* health,
            std::shared_ptr<Timeline> timeline, size_t level);

  void Enqueue(CpuStream* stream, StreamTask* task, bool inline_if_idle);

  // For Synchronize.
  uint64_t last_sequence() const { return last_.load(); }
  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

  void Run() override;

 private:
  void Execute(CpuStream* stream, StreamTask* task, Nanos now);
  // REQUIRES: the caller has the strand, which the worker then has.
  void Schedule();
  void Next();

  WorkerPool* const workers_;
  const DeviceHealth* const health_;
  const std::shared_ptr<Timeline> timeline_;
  const size_t level_;
  Atomic<uint64_t> last_{0};
  // Whoever makes it 1 has the strand, until it is 0.
  Atomic<uint32_t> unfinished_{0};
  Mutex mu_;
  StreamTaskQueue queue_ WEIR_GUARDED_BY(mu_);
  CpuStream* stream_ WEIR_GUARDED_BY(mu_) = nullptr;
  // Set while the pool has this job, which it knows by a bare pointer.
  std::shared_ptr<CpuStrand> scheduled_ WEIR_GUARDED_BY(mu_);
};

class CpuStream final : public Stream {
 public:
  CpuStream(CpuDevice* device, uint64_t id, int priority,
            std::shared_ptr<CpuStrand> strand);
  ~CpuStream() override;

  Device& device() const override;
  uint64_t id() const override { return id_; }
  int priority() const override { return priority_; }

  using Stream::Enqueue;
  uint64_t Enqueue(StreamTask* task, Inline inline_run) override;

  absl::Status CopyToDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyToHost(void* dst, const void* src, size_t bytes) override;
  absl::Status CopyOnDevice(void* dst, const void* src, size_t bytes) override;
  absl::Status Fill(void* dst, uint8_t value, size_t bytes) override;
  absl::Status WaitOnDevice(const Point& point) override;
  FaultSlot* fault_slot() override { return nullptr; }

 private:
  CpuDevice* const device_;
  const uint64_t id_;
  const int priority_;
  const std::shared_ptr<CpuStrand> strand_;
};

}  // namespace weir
