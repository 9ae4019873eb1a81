// Threads, and what a thread may do about itself and time: the one place from
// which kernels/ starts threads, sleeps and spins, so that the simulation
// (tests/sim) can put its own in its place.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <utility>

#include "kernels/base/clock.h"

namespace weir {

// A std::thread with a name.
class Thread {
 public:
  Thread() = default;  // none
  // `name`, a literal of at most 15 bytes, is what debuggers and ps show.
  template <typename F>
  Thread(const char* name, F run)
      : thread_([name, run = std::move(run)]() mutable {
          pthread_setname_np(pthread_self(), name);
          std::invoke(run);
        }) {}

  bool Joinable() const { return thread_.joinable(); }
  void Join() { thread_.join(); }

 private:
  std::thread thread_;
};

using ThreadId = std::thread::id;  // of no thread, if it is default constructed
inline ThreadId ThisThread() { return std::this_thread::get_id(); }

// The calling thread's, the same for its whole life: to spread threads over a
// few places.
inline size_t ThreadNumber() {
  static std::atomic<size_t> next{0};
  thread_local const size_t number =
      next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

inline void SleepFor(Nanos time) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(time));
}
// In a loop that looks again and again at what others will change.
inline void Yield() { std::this_thread::yield(); }
inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A variable that each thread has for itself; `Tag` tells it from others.
template <typename Tag, typename T>
T& ThreadOwn() {
  thread_local T value{};
  return value;
}

}  // namespace weir
