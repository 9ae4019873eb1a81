// NowNanos for those who reckon in absl's durations: what waits for so long
// does not ask the wall clock, which may be set meanwhile.
#pragma once

#include "absl/time/time.h"
#include "kernels/base/clock.h"

namespace weir {

// Since some moment in the past, the same for the whole process.
inline absl::Duration SteadyNow() { return absl::Nanoseconds(NowNanos()); }

}  // namespace weir
