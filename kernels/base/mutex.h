// A std::mutex and condition variable with clang's thread-safety annotations.
// We use these instead of absl::Mutex because the packaged Abseil is not
// instrumented for ThreadSanitizer and reports races that are not there.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "kernels/base/thread_annotations.h"

namespace weir {

class WEIR_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() WEIR_ACQUIRE() { mu_.lock(); }
  void Unlock() WEIR_RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
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

// Wait in a loop on the guarded condition; wake-ups may be spurious.
class CondVar {
 public:
  void Wait(Mutex* mu) WEIR_REQUIRES(mu) WEIR_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // Returns false once `deadline` has passed.
  bool WaitUntil(Mutex* mu, std::chrono::steady_clock::time_point deadline)
      WEIR_REQUIRES(mu) WEIR_NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    const bool in_time =
        cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace weir
