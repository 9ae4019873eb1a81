// Last-in, first-out lists of small numbers, which any thread pushes to and
// takes from without a lock. A number stands for something that its owner has
// in a table, and is in one list at most: who has taken it owns what it stands
// for, as whoever pushed it left it. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/base/atomic.h"

namespace weir {

class NumberStack {
 public:
  static constexpr uint32_t kMost = UINT32_MAX - 1;

  // The link of each number that may be pushed: it is there, and the same, for
  // as long as the list is, whoever owns the number.
  using Link = Atomic<uint32_t>;

  // `link` is called with a number and returns its Link&.
  template <typename LinkOf>
  void Push(uint32_t number, const LinkOf& link) {
    uint64_t head = head_.load(std::memory_order_relaxed);
    do {
      link(number).store(First(head), std::memory_order_relaxed);
    } while (!head_.compare_exchange_weak(head, Next(head, number + 1)));
  }

  // The newest; nothing if there is none.
  template <typename LinkOf>
  std::optional<uint32_t> Pop(const LinkOf& link) {
    uint64_t head = head_.load();
    while (First(head) != 0) {
      // Where another thread was faster this may be any number, and fails.
      const uint32_t next =
          link(First(head) - 1).load(std::memory_order_relaxed);
      if (head_.compare_exchange_weak(head, Next(head, next))) {
        return First(head) - 1;
      }
    }
    return std::nullopt;
  }

  // All, the newest first.
  template <typename LinkOf>
  std::vector<uint32_t> TakeAll(const LinkOf& link) {
    uint64_t head = head_.load();
    while (!head_.compare_exchange_weak(head, Next(head, 0))) {
    }
    std::vector<uint32_t> numbers;
    for (uint32_t first = First(head); first != 0;) {
      numbers.push_back(first - 1);
      first = link(first - 1).load(std::memory_order_relaxed);
    }
    return numbers;
  }

 private:
  // A number plus one, or 0; above it a count of all changes, so that a head
  // that was read is another one once it was changed, though the same number
  // may be first again.
  static uint32_t First(uint64_t head) { return static_cast<uint32_t>(head); }
  static uint64_t Next(uint64_t head, uint32_t first) {
    return ((head >> 32) + 1) << 32 | first;
  }

  Atomic<uint64_t> head_{0};
};

}  // namespace weir
