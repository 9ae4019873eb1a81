// The tree's Mutex and CondVar as the simulation has them: see
// tests/sim/logical.h.
#pragma once

#include <chrono>

#include "kernels/base/thread_annotations.h"
#include "tests/sim/logical.h"

namespace weir {

class WEIR_CAPABILITY("mutex") Mutex {
 public:
  // What it is in is the place where it is made.
  [[gnu::always_inline]] Mutex() {}
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() WEIR_ACQUIRE() { mu_.Lock(); }
  void Unlock() WEIR_RELEASE() { mu_.Unlock(); }

 private:
  friend class CondVar;
  sim::LogicalMutex mu_;
};

class WEIR_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex* mu) WEIR_ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() WEIR_RELEASE() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

class CondVar {
 public:
  [[gnu::always_inline]] CondVar() {}
  void Wait(Mutex* mu) WEIR_REQUIRES(mu) { cv_.Wait(mu->mu_); }
  bool WaitUntil(Mutex* mu, std::chrono::steady_clock::time_point deadline)
      WEIR_REQUIRES(mu) {
    return cv_.Wait(mu->mu_,
                    std::chrono::duration_cast<std::chrono::nanoseconds>(
                        deadline.time_since_epoch())
                        .count());
  }
  void NotifyOne() { cv_.Notify(/*all=*/false); }
  void NotifyAll() { cv_.Notify(/*all=*/true); }

 private:
  sim::LogicalCondVar cv_;
};

}  // namespace weir
