// Monotonic time in nanoseconds: the one clock of deadlines and reports.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace weir {

// A deadline or time stamp on std::chrono::steady_clock, in nanoseconds.
using Nanos = int64_t;

inline constexpr Nanos kNoDeadline = std::numeric_limits<Nanos>::max();

inline Nanos NowNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline std::chrono::steady_clock::time_point ToTimePoint(Nanos t) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(t)));
}

}  // namespace weir
