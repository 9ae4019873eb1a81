// A growing list in a call's arena, which may refuse it. The arena never frees,
// so what the list held outlives it. Used by one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <type_traits>

#include "absl/status/statusor.h"
#include "server/bytes/call_arena.h"

namespace weir {

template <typename T>
class ArenaList {
 public:
  static_assert(std::is_trivially_destructible_v<T>);

  explicit ArenaList(CallArena* arena) : arena_(arena) {}

  // Null if there are `limit` items already, or if the arena was refused room
  // for more.
  T* Add(size_t limit) {
    if (count_ >= limit || (count_ == room_.size() && !Grow())) return nullptr;
    return new (&room_[count_++]) T();
  }

  size_t size() const { return count_; }
  std::span<T> span() const { return room_.first(count_); }

 private:
  bool Grow() {
    const absl::StatusOr<std::span<T>> more =
        arena_->TryAllocateSpan<T>(std::max<size_t>(1, 2 * count_));
    if (!more.ok()) return false;
    std::uninitialized_copy_n(room_.begin(), count_, more->begin());
    room_ = *more;
    return true;
  }

  CallArena* const arena_;
  std::span<T> room_;
  size_t count_ = 0;
};

}  // namespace weir
