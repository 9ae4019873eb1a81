// The CPU as a device: host memory, and streams that are strands on one worker
// pool. The same contract as the CUDA device, so that every suite runs on both.
#pragma once

#include <memory>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/device/cpu/cpu_stream.h"
#include "kernels/device/cpu/worker_pool.h"
#include "kernels/device/device.h"

namespace weir {

class CpuDevice final : public Device {
 public:
  // `threads` and `memory` as in host_limits.h; the rest as in DeviceOptions.
  CpuDevice(int threads, int64_t memory, bool streams_wait = false,
            int ordinal = 0);
  ~CpuDevice() override;  // REQUIRES: its streams are gone

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int priority) override;
  bool host_addressable() const override { return true; }
  bool streams_wait() const override { return streams_wait_; }
  CpuTeam* cpu_team() override { return &workers_; }
  absl::StatusOr<int64_t> QueryFreeMemory() override;
  absl::Status Synchronize() override;

  // Blocks until `point` is known; another worker takes this one's place.
  absl::Status WaitFor(const Point& point);

 private:
  absl::StatusOr<void*> AllocateRaw(size_t bytes) override;
  void FreeRaw(void* data, size_t bytes) override;
  absl::StatusOr<void*> AllocatePinnedRaw(size_t bytes) override;
  void FreePinnedRaw(void* data, size_t bytes) override;

  absl::StatusOr<void*> AllocateAligned(size_t bytes, size_t alignment);
  void FreeAligned(void* data, size_t bytes);

  const bool streams_wait_;
  Atomic<int64_t> free_bytes_;
  Mutex mu_;
  std::vector<std::weak_ptr<CpuStrand>> strands_ WEIR_GUARDED_BY(mu_);
  WorkerPool workers_;  // last: its threads end first
};

}  // namespace weir
