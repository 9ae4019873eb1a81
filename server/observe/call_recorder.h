// Counts every call and writes its log line when it has ended, with the code
// that its caller sees: one who left at its deadline has DEADLINE_EXCEEDED,
// whatever the server was told first. The line has level debug for
// OK, info where the caller was at fault, warning for the rest. Lines of failed
// calls are bounded, and the server says how many it left out. Used by the I/O
// threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "kernels/base/timer_queue.h"
#include "server/observe/line_limiter.h"
#include "server/observe/logger.h"
#include "server/observe/metrics.h"
#include "server/rpc/method_table.h"

namespace weir {

class CallRecorder final : public CallObserver {
 public:
  // `metrics` and `logger` outlive it; `timers` are there while calls end, and
  // have ended before it goes.
  // `id_prefix` begins the ids of requests that bring none.
  CallRecorder(Metrics* metrics, Logger* logger, TimerQueue* timers,
               std::string id_prefix);

  void OnEnded(const ServerCall& call, const Method& method,
               const absl::Status& given, Delivery delivery) override;

  // Says now how many lines were left out since it was last said.
  void ReportSuppressed();
  uint64_t suppressed_total() const;

 private:
  void Write(const ServerCall& call, const Method& method,
             const absl::Status& status, Delivery delivery, LogLevel level);
  // Whether a line of a failed call may be written.
  bool Allow(LogLevel level, Nanos now);

  Metrics* const metrics_;
  Logger* const logger_;
  TimerQueue* const timers_;
  const std::string id_prefix_;
  std::atomic<uint64_t> next_id_{1};
  // A flood of callers' mistakes must not hide failures of the server.
  LineLimiter callers_;
  LineLimiter servers_;
  std::atomic<bool> report_due_{false};
};

}  // namespace weir
