#include "server/observe/line_limiter.h"

#include <algorithm>

namespace weir {

bool LineLimiter::Allow(Nanos now) {
  Nanos paid = paid_until_.load(std::memory_order_relaxed);
  do {
    if (paid - now > room_) {
      suppressed_.fetch_add(1, std::memory_order_relaxed);
      total_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!paid_until_.compare_exchange_weak(
      paid, std::max(paid, now) + interval_, std::memory_order_relaxed));
  return true;
}

}  // namespace weir
