// Waits in tests for what another thread will make true and announces through
// nothing but a value to read.
#pragma once

#include <chrono>
#include <thread>

namespace weir::testing {

// How long a test waits for what must happen.
inline constexpr auto kPatience = std::chrono::seconds(60);

// Reads `condition` until it is true; false if it never became so.
template <typename Condition>
bool Eventually(Condition condition,
                std::chrono::nanoseconds patience = kPatience) {
  const auto give_up = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace weir::testing
