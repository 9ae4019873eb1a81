// A growing list in a call's arena. The arena never frees, so what the list
// held outlives it. Used by one thread.
#pragma once

#include <memory_resource>
#include <span>
#include <type_traits>
#include <vector>

#include "server/rpc/call_arena.h"

namespace weir {

template <typename T>
class ArenaList {
 public:
  static_assert(std::is_trivially_destructible_v<T>);

  explicit ArenaList(CallArena* arena) : items_(arena) {}

  // Null if there are `limit` items already.
  T* Add(size_t limit) {
    return items_.size() < limit ? &items_.emplace_back() : nullptr;
  }

  std::span<const T> span() const { return {items_.data(), items_.size()}; }

 private:
  std::pmr::vector<T> items_;
};

}  // namespace weir
