// The clock as the simulation has it: see tests/sim/logical.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

#include "tests/sim/logical.h"

namespace weir {

using Nanos = int64_t;

inline constexpr Nanos kNoDeadline = std::numeric_limits<Nanos>::max();

inline Nanos NowNanos() { return sim::Now(); }

inline std::chrono::steady_clock::time_point ToTimePoint(Nanos t) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::nanoseconds(t)));
}

}  // namespace weir
