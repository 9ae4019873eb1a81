#include "server/observe/grpc_lines.h"

namespace weir {
namespace {

constexpr int64_t kBurst = 20;
constexpr Nanos kInterval = 1'000'000'000;
constexpr size_t kMaxTextBytes = 512;
// How gRPC 1.51 begins to tell that a handshake failed.
constexpr std::string_view kTlsSource = "ssl_transport_security.cc:";
constexpr std::string_view kTlsFailed = "Handshake failed";

}  // namespace

GrpcLines::GrpcLines(Logger* logger)
    : logger_(logger), limiter_(kBurst, kInterval) {}

void GrpcLines::Write(bool error, std::string_view source,
                      std::string_view text, Nanos now) {
  if (error && source.starts_with(kTlsSource) && text.starts_with(kTlsFailed)) {
    ++handshake_failures_;
  }
  const LogLevel level = error ? LogLevel::kWarning : LogLevel::kDebug;
  if (!logger_->enabled(level) || !limiter_.Allow(now)) return;
  ReportSuppressed();
  logger_->Log(level, "gRPC",
               {{"text", text.substr(0, kMaxTextBytes)}, {"source", source}});
}

void GrpcLines::ReportSuppressed() {
  const uint64_t lines = limiter_.TakeSuppressed();
  if (lines == 0) return;
  logger_->Log(LogLevel::kWarning, "lines of gRPC were left out",
               {{"count", static_cast<int64_t>(lines)}});
}

}  // namespace weir
