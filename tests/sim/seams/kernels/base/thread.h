// Threads as the simulation has them: see tests/sim/logical.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "kernels/base/clock.h"
#include "tests/sim/logical.h"

namespace weir {

class Thread {
 public:
  Thread() = default;
  template <typename F>
  Thread(const char* name, F run)
      : thread_(sim::StartThread(name, [run = std::make_shared<F>(std::move(
                                            run))] { std::invoke(*run); })) {}
  Thread(Thread&& other) noexcept : thread_(std::exchange(other.thread_, 0)) {}
  Thread& operator=(Thread&& other) noexcept {
    std::swap(thread_, other.thread_);
    return *this;
  }

  bool Joinable() const { return thread_ != 0; }
  void Join() { sim::JoinThread(std::exchange(thread_, 0)); }

 private:
  uint64_t thread_ = 0;
};

using ThreadId = uint64_t;
inline ThreadId ThisThread() { return sim::CurrentThread(); }
inline size_t ThreadNumber() { return sim::ThreadNumber(); }

// Who calls these looks at something again afterwards.
inline constexpr Nanos kYieldTime = 10'000;
inline void SleepFor(Nanos time) { sim::AwaitChange(time); }
inline void Yield() { sim::AwaitChange(kYieldTime); }
inline void Relax() { sim::AwaitChange(kYieldTime); }

template <typename Tag, typename T>
T& ThreadOwn() {
  static char name;
  // Zero is what such a variable is at first.
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of a pointer, it is that
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  return *static_cast<T*>(sim::OwnVariable(&name));
}

}  // namespace weir
