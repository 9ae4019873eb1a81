// Waits in tests: no clock orders anything. Thread-safe.
#pragma once

#include <cstddef>

#include "kernels/base/mutex.h"

namespace weir {

// Something that happens a number of times.
class Event {
 public:
  void Set() {
    MutexLock lock(&mu_);
    ++count_;
    changed_.NotifyAll();
  }
  void Wait(size_t times = 1) {
    MutexLock lock(&mu_);
    while (count_ < times) changed_.Wait(&mu_);
  }
  size_t count() const {
    MutexLock lock(&mu_);
    return count_;
  }

 private:
  mutable Mutex mu_;
  CondVar changed_;
  size_t count_ WEIR_GUARDED_BY(mu_) = 0;
};

}  // namespace weir
