// Counts spaces that are opened and closed, and writes a line of each: who it
// was for, and what it held in the end; and a line of each context that nobody
// used. The lines are bounded. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/base/clock.h"
#include "server/observe/line_limiter.h"
#include "server/observe/logger.h"
#include "server/spaces/account.h"
#include "server/spaces/space.h"

namespace weir {

class SpaceRecorder {
 public:
  enum class End : uint8_t {
    kClosed,  // by its caller
    kLease,   // nobody used it for as long as its lease
  };
  static constexpr std::array<const char*, 2> kEndNames = {"closed", "lease"};

  explicit SpaceRecorder(Logger* logger);

  void Opened(const Space& space, Nanos now);
  // `held` until then.
  void Closed(const Space& space, End why, const Amounts& held, Nanos now);

  void ContextExpired(const Space& space, const Space::ExpiredContext& context,
                      Nanos now);

  uint64_t opened_total() const { return opened_.load(); }
  uint64_t closed_total(End why) const {
    return closed_[static_cast<size_t>(why)].load();
  }

  // Says how many lines were left out since it was last said.
  void ReportSuppressed();
  uint64_t suppressed_total() const { return limiter_.suppressed_total(); }

 private:
  Logger* const logger_;
  LineLimiter limiter_;
  std::atomic<uint64_t> opened_{0};
  std::array<std::atomic<uint64_t>, kEndNames.size()> closed_ = {};
};

}  // namespace weir
