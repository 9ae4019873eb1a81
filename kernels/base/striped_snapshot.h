// A shared immutable value that many threads read and few replace. Readers take
// the lock of their own stripe, which a writer holds only to swap a pointer, so
// that readers on different threads do not meet. Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"

namespace weir {

// The calling thread's stripe, the same for its whole life.
inline size_t ThreadStripe() {
  static Atomic<size_t> next{0};
  static thread_local const size_t stripe =
      next.fetch_add(1, std::memory_order_relaxed);
  return stripe;
}

template <typename T>
class StripedSnapshot {
 public:
  explicit StripedSnapshot(std::shared_ptr<const T> value) {
    Store(std::move(value));
  }

  // Calls fn(const T&) and returns its result. `fn` must be short: it holds
  // this thread's stripe, and may not call Store.
  template <typename F>
  auto Read(F&& fn) const {
    const Stripe& stripe = stripes_[ThreadStripe() % kStripes];
    MutexLock lock(&stripe.mu);
    return std::forward<F>(fn)(*stripe.value);
  }

  // For those who keep it for longer.
  std::shared_ptr<const T> Load() const {
    const Stripe& stripe = stripes_[ThreadStripe() % kStripes];
    MutexLock lock(&stripe.mu);
    return stripe.value;
  }

  // Writers serialize themselves where one builds on the other's value.
  void Store(std::shared_ptr<const T> value) {
    for (Stripe& stripe : stripes_) {
      std::shared_ptr<const T> old = value;
      MutexLock lock(&stripe.mu);
      stripe.value.swap(old);
      // `old` goes after the lock does: the last one may free much.
    }
  }

 private:
  static constexpr size_t kStripes = 16;
  struct alignas(64) Stripe {
    mutable Mutex mu;
    std::shared_ptr<const T> value WEIR_GUARDED_BY(mu);
  };
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace weir
