// The longest wait of a call for what is not there yet, whatever its deadline
// (docs/limits.md).
#pragma once

#include "kernels/base/clock.h"

namespace weir {

inline constexpr Nanos kLongestWait = 60'000'000'000;

}  // namespace weir
