// Whether the server should get traffic, and if not, why: several things may
// keep it from that at once. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/base/mutex.h"

namespace weir {

// What may keep traffic away. Of several, the first says why.
enum class Unready : uint8_t {
  // Faults: what a restart of the process would mend.
  kLost,
  kHangs,
  // What passes, or is meant.
  kDraining,
  kStalled,
  kLoading,
  kModels
};
inline constexpr size_t kFaults = 2;
inline constexpr size_t kUnreadyCauses = 6;

class Readiness {
 public:
  Readiness() { Set(Unready::kLoading, "loading"); }

  // "" takes the cause away. True if it came or went.
  bool Set(Unready cause, std::string why) {
    MutexLock lock(&mu_);
    std::string& current = why_not_[static_cast<size_t>(cause)];
    const bool changes = current.empty() != why.empty();
    current = std::move(why);
    ready_ = First(kUnreadyCauses).empty();
    return changes;
  }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // "" if it is ready.
  std::string why_not() const {
    MutexLock lock(&mu_);
    return First(kUnreadyCauses);
  }
  // The fault that there is; "" if there is none.
  std::string fault() const {
    MutexLock lock(&mu_);
    return First(kFaults);
  }

 private:
  // Of the first `count` causes.
  std::string First(size_t count) const WEIR_REQUIRES(mu_) {
    const auto end = why_not_.begin() + count;
    const auto found =
        std::find_if(why_not_.begin(), end,
                     [](const std::string& why) { return !why.empty(); });
    return found == end ? "" : *found;
  }

  std::atomic<bool> ready_{false};
  mutable Mutex mu_;
  std::array<std::string, kUnreadyCauses> why_not_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
