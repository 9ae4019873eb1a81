#include "server/observe/memory_sampler.h"

#include "absl/status/statusor.h"
#include "kernels/base/steady_time.h"

namespace weir {

MemorySampler::MemorySampler(Device* device, absl::Duration period,
                             absl::Duration kept)
    : device_(device),
      kept_(kept),
      newest_(Ask()),
      thread_("weir-sample", period, [this] {
        const Answer answer = Ask();
        MutexLock lock(&mu_);
        newest_ = answer;
      }) {}

MemorySampler::Answer MemorySampler::Ask() const {
  const absl::StatusOr<int64_t> bytes = device_->QueryFreeMemory();
  Answer answer;
  if (bytes.ok()) answer.bytes = *bytes;
  answer.at = SteadyNow();
  return answer;
}

std::optional<int64_t> MemorySampler::free_bytes() const {
  MutexLock lock(&mu_);
  if (SteadyNow() - newest_.at > kept_) return std::nullopt;
  return newest_.bytes;
}

}  // namespace weir
