// Bounds how many lines a flood of like events writes: a burst, then so many a
// second; the rest is counted. Lock-free, thread-safe; the caller brings the
// time.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/base/clock.h"

namespace weir {

class LineLimiter {
 public:
  // `burst` lines at once, and one more every `interval`.
  LineLimiter(int64_t burst, Nanos interval)
      : room_((burst - 1) * interval), interval_(interval) {}

  // False if the line is to be left out; it is counted then.
  bool Allow(Nanos now);

  // Lines left out since the last call, and since the beginning.
  uint64_t TakeSuppressed() {
    return suppressed_.exchange(0, std::memory_order_relaxed);
  }
  uint64_t suppressed_total() const {
    return total_.load(std::memory_order_relaxed);
  }

 private:
  const Nanos room_;
  const Nanos interval_;
  // When all lines so far are paid for, at one an interval.
  std::atomic<Nanos> paid_until_{0};
  std::atomic<uint64_t> suppressed_{0};
  std::atomic<uint64_t> total_{0};
};

}  // namespace weir
