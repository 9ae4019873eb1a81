#include "server/observe/kernel_cache_lines.h"

namespace weir {

void KernelCacheLines::Write(const std::string& device,
                             const KernelCacheStats& stats) {
  Said& said = said_[device];
  if (said.quiet > 0) {
    --said.quiet;
    return;
  }
  const uint64_t failures = stats.write_failures_total - said.failures;
  if (failures == 0) return;
  said = {stats.write_failures_total, kQuietCalls};
  logger_->Log(LogLevel::kWarning, "compiled kernels could not be kept",
               {{"device", device},
                {"count", static_cast<int64_t>(failures)},
                {"error", stats.write_failure},
                {"remedy",
                 "make room there, or give another --cache-dir: until then "
                 "they are compiled again after each start"}});
}

}  // namespace weir
