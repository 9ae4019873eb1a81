// gRPC's own lines on their way into our log: escaped as all are, cut, and
// bounded, as any stranger with a socket can cause them. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "kernels/base/clock.h"
#include "server/observe/line_limiter.h"
#include "server/observe/logger.h"

namespace weir {

class GrpcLines {
 public:
  explicit GrpcLines(Logger* logger);

  // gRPC's errors are warnings of ours, as they tell of one connection; the
  // rest is for level debug.
  void Write(bool error, std::string_view source, std::string_view text,
             Nanos now);

  // Says now how many lines were left out since it was last said; Write says it
  // with the next line that it lets through.
  void ReportSuppressed();
  uint64_t suppressed_total() const { return limiter_.suppressed_total(); }
  // Lines, written or not, that tell of a TLS handshake which failed. A client
  // that ends one without a word is in none.
  uint64_t handshake_failures() const { return handshake_failures_.load(); }

 private:
  Logger* const logger_;
  LineLimiter limiter_;
  std::atomic<uint64_t> handshake_failures_{0};
};

}  // namespace weir
