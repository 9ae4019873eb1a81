#include "server/observe/memory_sampler.h"

namespace weir {

MemorySampler::MemorySampler(Device* device, absl::Duration period)
    : free_bytes_(device->QueryFreeMemory().value_or(0)),
      thread_("weir-sample", period, [this, device] {
        free_bytes_.store(device->QueryFreeMemory().value_or(0),
                          std::memory_order_relaxed);
      }) {}

}  // namespace weir
