// How much memory of a device is free, for those who may not wait for the
// answer: the driver takes its time while it allocates, so a thread of this
// object asks it now and then. Owned by Engines; free_bytes() is for any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "kernels/base/periodic_thread.h"
#include "kernels/device/device.h"

namespace weir {

class MemorySampler {
 public:
  // Asks once before it returns. `device` outlives the sampler, which ends when
  // a question that is on its way was answered.
  explicit MemorySampler(Device* device,
                         absl::Duration period = absl::Seconds(5));

  // The newest answer; 0 if there was none, as of a device that was lost.
  int64_t free_bytes() const {
    return free_bytes_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> free_bytes_;
  PeriodicThread thread_;
};

}  // namespace weir
