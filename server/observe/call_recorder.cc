#include "server/observe/call_recorder.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "server/observe/trace_context.h"

namespace weir {
namespace {

constexpr int64_t kBurst = 100;
constexpr Nanos kInterval = 200'000'000;
constexpr Nanos kReportAfter = 10'000'000'000;
// How much sooner than its deadline a call's caller may leave because of it,
// beside what is rounded.
constexpr Nanos kMostEarly = 10'000'000;
// Of what callers choose.
constexpr size_t kMaxErrorBytes = 512;

LogLevel LevelOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return LogLevel::kDebug;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kUnauthenticated:
      return LogLevel::kInfo;
    default:
      return LogLevel::kWarning;
  }
}

// Why a call was refused for want of room or time; empty if it was not. What
// can never fit says no time to try again, nor does a caller that is too slow.
std::string RefusalOf(const absl::Status& status) {
  if (status.code() != absl::StatusCode::kResourceExhausted &&
      status.code() != absl::StatusCode::kDeadlineExceeded) {
    return "";
  }
  std::string reason = Reason(status);
  if (RetryAfter(status).has_value()) return reason.empty() ? "OTHER" : reason;
  const bool late =
      reason.empty() && status.code() == absl::StatusCode::kDeadlineExceeded;
  return late ? std::string(Metrics::kDeadlinePassed) : "";
}

// As the caller sees it, for which gRPC leaves at its deadline: a moment before
// that has come by the server's clock, as it was told a time that was rounded
// up, and only then began to count.
absl::Status AsItsCallerSeesIt(const ServerCall& call,
                               const absl::Status& status, Delivery delivery) {
  if (status.code() != absl::StatusCode::kCancelled ||
      delivery == Delivery::kCut || call.deadline() == kNoDeadline) {
    return status;
  }
  const Nanos given = std::max<Nanos>(call.deadline() - call.received(), 0);
  const Nanos early = std::min(kMostEarly, given / 8) + given / 50;
  if (call.answered() < call.deadline() - early) return status;
  return absl::DeadlineExceededError(
      "the deadline passed before the call was answered, and its caller left");
}

// The caller's own id, or none.
std::string_view GivenId(const ServerCall& call) {
  std::string_view id = call.Header("x-request-id").value_or("");
  if (id.empty()) id = call.request_id();
  return id.substr(0, ServerCall::kMaxRequestIdBytes);
}

}  // namespace

CallRecorder::CallRecorder(Metrics* metrics, Logger* logger, TimerQueue* timers,
                           std::string id_prefix)
    : metrics_(metrics),
      logger_(logger),
      timers_(timers),
      id_prefix_(std::move(id_prefix)),
      callers_(kBurst, kInterval),
      servers_(kBurst, kInterval) {}

void CallRecorder::OnEnded(const ServerCall& call, const Method& method,
                           const absl::Status& given, Delivery delivery) {
  const absl::Status status = AsItsCallerSeesIt(call, given, delivery);
  metrics_->RecordCall(method.number, status.code(),
                       call.whole() ? call.answered() - call.received() : 0);
  if (const std::string refusal = RefusalOf(status); !refusal.empty()) {
    metrics_->RecordRefusal(method.number, refusal);
  }
  const LogLevel level = LevelOf(status.code());
  if (!logger_->enabled(level)) return;
  if (!status.ok() && !Allow(level, call.answered())) return;
  Write(call, method, status, delivery, level);
}

bool CallRecorder::Allow(LogLevel level, Nanos now) {
  if ((level == LogLevel::kInfo ? callers_ : servers_).Allow(now)) return true;
  if (!report_due_.exchange(true)) {
    timers_->Add(now + kReportAfter, [this] {
      report_due_ = false;
      ReportSuppressed();
    });
  }
  return false;
}

void CallRecorder::Write(const ServerCall& call, const Method& method,
                         const absl::Status& status, Delivery delivery,
                         LogLevel level) {
  std::string id(GivenId(call));
  if (id.empty()) {
    id = absl::StrCat(id_prefix_, "-",
                      next_id_.fetch_add(1, std::memory_order_relaxed));
  }
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string peer = call.Connection();
  std::vector<LogField> fields = {
      {"request_id", id},
      {"method", method.name},
      {"code", code},
      {"duration_us", (call.answered() - call.received()) / 1000},
      {"peer", peer}};
  const auto header = call.Header("traceparent");
  const auto trace = header.has_value() ? ParseTraceparent(*header)
                                        : std::optional<TraceContext>();
  if (trace.has_value()) fields.push_back({"trace_id", trace->trace_id});
  if (!call.label().empty()) fields.push_back({"label", call.label()});
  if (delivery != Delivery::kSent) {
    fields.push_back({"reply", delivery == Delivery::kCut ? "cut" : "dropped"});
  }
  const std::string reason = Reason(status);
  if (!reason.empty()) fields.push_back({"reason", reason});
  if (!status.ok()) {
    const std::string_view error(status.message().data(),
                                 status.message().size());
    fields.push_back({"error", error.substr(0, kMaxErrorBytes)});
  }
  logger_->Log(level, status.ok() ? "call answered" : "call failed", fields);
}

void CallRecorder::ReportSuppressed() {
  const uint64_t lines = callers_.TakeSuppressed() + servers_.TakeSuppressed();
  if (lines == 0) return;
  logger_->Log(LogLevel::kWarning, "lines of failed calls were left out",
               {{"count", static_cast<int64_t>(lines)}});
}

uint64_t CallRecorder::suppressed_total() const {
  return callers_.suppressed_total() + servers_.suppressed_total();
}

}  // namespace weir
