#include "server/observe/space_recorder.h"

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr int64_t kBurst = 100;
constexpr Nanos kInterval = 200'000'000;

int64_t Number(const Amounts& amounts, Holding what) {
  return static_cast<int64_t>(amounts[what]);
}

}  // namespace

SpaceRecorder::SpaceRecorder(Logger* logger)
    : logger_(logger), limiter_(kBurst, kInterval) {}

void SpaceRecorder::Opened(const Space& space, Nanos now) {
  opened_.fetch_add(1, std::memory_order_relaxed);
  if (!logger_->enabled(LogLevel::kInfo) || !limiter_.Allow(now)) return;
  logger_->Log(LogLevel::kInfo, "space opened",
               {{"space", static_cast<int64_t>(space.id())},
                {"label", space.label()},
                {"identity", space.identity()},
                {"lease_s", static_cast<double>(space.lease()) * 1e-9}});
}

void SpaceRecorder::Closed(const Space& space, End why, const Amounts& held,
                           Nanos now) {
  closed_[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  if (!logger_->enabled(LogLevel::kInfo) || !limiter_.Allow(now)) return;
  logger_->Log(LogLevel::kInfo, "space closed",
               {{"space", static_cast<int64_t>(space.id())},
                {"label", space.label()},
                {"identity", space.identity()},
                {"why", kEndNames[static_cast<size_t>(why)]},
                {"tensor_bytes", Number(held, Holding::kTensorBytes)},
                {"tensors", Number(held, Holding::kTensors)},
                {"contexts", Number(held, Holding::kContexts)},
                {"timelines", Number(held, Holding::kTimelines)},
                {"works", Number(held, Holding::kWorks)}});
}

void SpaceRecorder::ContextExpired(const Space& space,
                                   const Space::ExpiredContext& context,
                                   Nanos now) {
  if (!logger_->enabled(LogLevel::kInfo) || !limiter_.Allow(now)) return;
  logger_->Log(LogLevel::kInfo, "context closed",
               {{"space", static_cast<int64_t>(space.id())},
                {"label", space.label()},
                {"identity", space.identity()},
                {"why", "ttl"},
                {"context", absl::StrCat(context.number)},
                {"ttl_s", static_cast<double>(context.ttl) * 1e-9}});
}

void SpaceRecorder::ReportSuppressed() {
  const uint64_t lines = limiter_.TakeSuppressed();
  if (lines == 0) return;
  logger_->Log(LogLevel::kWarning, "lines of spaces were left out",
               {{"count", static_cast<int64_t>(lines)}});
}

}  // namespace weir
