// How many I/O threads a server has that is told no number.
#pragma once

#include <algorithm>

namespace weir {

// With more threads than this each has more of the bounds that all share than
// its part would be (kLeastOfAThread), so that a default costs no memory that
// the CPUs themselves do not.
inline constexpr int kMostThreadsBesideCpus = 16;

// What completes on a thread's other calls waits while it reads or writes a
// large message: one thread more for each four CPUs uses those that are free
// meanwhile. More of them, or one more on few CPUs, costs small messages more
// than that gives large ones (docs/benchmarks.md).
constexpr int DefaultIoThreads(int cpus) {
  return std::max(cpus, std::min(cpus + cpus / 4, kMostThreadsBesideCpus));
}

}  // namespace weir
