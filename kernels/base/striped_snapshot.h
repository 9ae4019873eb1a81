// A shared immutable value that many threads read and few replace. Readers take
// no lock: they count themselves, in the counter of their own stripe, while
// they look; a writer waits until nobody looks at the value that it replaced.
// Thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"

namespace weir {

template <typename T>
class StripedSnapshot {
 public:
  using Value = std::shared_ptr<const T>;

  explicit StripedSnapshot(Value value) : value_(new Value(std::move(value))) {}
  ~StripedSnapshot() { delete value_.load(); }
  StripedSnapshot(const StripedSnapshot&) = delete;
  StripedSnapshot& operator=(const StripedSnapshot&) = delete;

  // Calls fn(const T&) and returns its result. `fn` must be short: writers wait
  // for it. It may not call Store.
  template <typename F>
  auto Read(F&& fn) const {
    const Look look(*this);
    return std::forward<F>(fn)(**value_.load());
  }

  // For those who keep it for longer.
  Value Load() const {
    const Look look(*this);
    return *value_.load();
  }

  // Waits for those who look at the old value, which ends here if nobody else
  // has it. Writers serialize themselves where one builds on the other's value.
  void Store(Value value) {
    std::unique_ptr<const Value> old;
    MutexLock lock(&store_mu_);
    old.reset(value_.exchange(new Value(std::move(value))));
    // Whoever has the old value counted itself in one of the two phases before
    // the exchange. First those of the phase that nobody enters any more go,
    // then all enter that one, and the others go.
    const uint32_t phase = phase_.load();
    AwaitReaders(1 - phase);
    phase_.store(1 - phase);
    AwaitReaders(phase);
  }

 private:
  static constexpr size_t kStripes = 16;
  struct alignas(64) Stripe {
    std::array<Atomic<uint32_t>, 2> readers = {};  // by phase
  };

  // While it lives the value that is there is not deleted.
  class Look {
   public:
    explicit Look(const StripedSnapshot& snapshot)
        : readers_(snapshot.stripes_[ThreadNumber() % kStripes]
                       .readers[snapshot.phase_.load()]) {
      readers_.fetch_add(1);
    }
    ~Look() { readers_.fetch_sub(1); }
    Look(const Look&) = delete;
    Look& operator=(const Look&) = delete;

   private:
    Atomic<uint32_t>& readers_;
  };

  void AwaitReaders(uint32_t phase) {
    for (const Stripe& stripe : stripes_) {
      while (stripe.readers[phase].load() != 0) Yield();
    }
  }

  Atomic<const Value*> value_;
  Atomic<uint32_t> phase_{0};
  mutable std::array<Stripe, kStripes> stripes_;
  Mutex store_mu_;
};

}  // namespace weir
