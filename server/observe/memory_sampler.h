// How much memory of a device is free, for those who may not wait for the
// answer: the driver takes its time while it allocates, so a thread of this
// object asks it now and then. Owned by Engines; free_bytes() is for any
// thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/base/periodic_thread.h"
#include "kernels/device/device.h"

namespace weir {

class MemorySampler {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(5);

  // Asks once before it returns. `device` outlives the sampler, which ends when
  // a question that is on its way was answered. An answer stands for `kept`.
  explicit MemorySampler(Device* device, absl::Duration period = kPeriod,
                         absl::Duration kept = 3 * kPeriod);

  // The newest answer; none if it was an error, as of a device that was lost,
  // or if it stands no more, as of a driver that hangs.
  std::optional<int64_t> free_bytes() const;

 private:
  struct Answer {
    std::optional<int64_t> bytes;
    absl::Duration at;  // as SteadyNow
  };
  Answer Ask() const;

  Device* const device_;
  const absl::Duration kept_;
  mutable Mutex mu_;
  Answer newest_ WEIR_GUARDED_BY(mu_);
  PeriodicThread thread_;
};

}  // namespace weir
