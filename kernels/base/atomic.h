// The atomics of our code. A name of its own, as Mutex has one, so that the
// simulation (tests/sim) can put its own in their place and switch threads at
// every access.
#pragma once

#include <atomic>

namespace weir {

template <typename T>
using Atomic = std::atomic<T>;

}  // namespace weir
