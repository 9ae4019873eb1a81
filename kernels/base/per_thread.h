// One T for each thread that asks for its own, so that threads which count
// share no cache line. T's members that are read by others are atomics; only
// the owning thread writes them, so that a plain load and store will do.
// Mine() takes no lock if the thread asked the same PerThread<T> last time.
// Objects stay until it goes; a new thread may get that of one that has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"

namespace weir {

template <typename T>
class PerThread {
 public:
  // `make` runs on the thread that asks.
  explicit PerThread(std::function<std::unique_ptr<T>()> make =
                         [] { return std::make_unique<T>(); })
      : make_(std::move(make)), id_(NextId()) {}
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

  // The calling thread's own.
  T& Mine() {
    thread_local Cached cached;
    if (cached.mine == nullptr || cached.id != id_) {
      cached = {id_, FindOrMake()};
    }
    return *cached.mine;
  }

  // visit(const T&) for each there is, on the calling thread.
  template <typename Visit>
  void ForEach(Visit visit) const {
    MutexLock lock(&mu_);
    for (const auto& [thread, object] : all_) visit(*object);
  }

 private:
  struct Cached {
    uint64_t id = 0;
    T* mine = nullptr;
  };

  static uint64_t NextId() {
    static Atomic<uint64_t> next{1};
    return next.fetch_add(1, std::memory_order_relaxed);
  }

  T* FindOrMake() {
    MutexLock lock(&mu_);
    for (const auto& [thread, object] : all_) {
      if (thread == ThisThread()) return object.get();
    }
    all_.emplace_back(ThisThread(), make_());
    return all_.back().second.get();
  }

  const std::function<std::unique_ptr<T>()> make_;
  const uint64_t id_;
  mutable Mutex mu_;
  std::vector<std::pair<ThreadId, std::unique_ptr<T>>> all_
      WEIR_GUARDED_BY(mu_);
};

// A number that its owning thread adds to and any thread may read.
class OwnedCounter {
 public:
  void Add(uint64_t n) {
    value_.store(value_.load(std::memory_order_relaxed) + n,
                 std::memory_order_relaxed);
  }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  Atomic<uint64_t> value_{0};
};

}  // namespace weir
