// Whether the server should get traffic, and if not, why. Thread-safe.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "kernels/base/mutex.h"

namespace weir {

class Readiness {
 public:
  void Set(std::string why_not) {
    MutexLock lock(&mu_);
    ready_ = why_not.empty();
    why_not_ = std::move(why_not);
  }
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  std::string why_not() const {
    MutexLock lock(&mu_);
    return why_not_;
  }

 private:
  std::atomic<bool> ready_{false};
  mutable Mutex mu_;
  std::string why_not_ WEIR_GUARDED_BY(mu_) = "starting";
};

}  // namespace weir
