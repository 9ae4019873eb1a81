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
  kLost,
  kHangs,
  kDraining,
  kStalled,
  kLoading,
  kModels
};
inline constexpr size_t kUnreadyCauses = 6;

class Readiness {
 public:
  Readiness() { Set(Unready::kLoading, "loading"); }

  // "" takes the cause away.
  void Set(Unready cause, std::string why) {
    MutexLock lock(&mu_);
    why_not_[static_cast<size_t>(cause)] = std::move(why);
    ready_ = First() == nullptr;
  }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // "" if it is ready.
  std::string why_not() const {
    MutexLock lock(&mu_);
    const std::string* first = First();
    return first == nullptr ? "" : *first;
  }

 private:
  const std::string* First() const WEIR_REQUIRES(mu_) {
    const auto found =
        std::find_if(why_not_.begin(), why_not_.end(),
                     [](const std::string& why) { return !why.empty(); });
    return found == why_not_.end() ? nullptr : &*found;
  }

  std::atomic<bool> ready_{false};
  mutable Mutex mu_;
  std::array<std::string, kUnreadyCauses> why_not_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
