// An object in an arena: destroyed as any other, while its memory stays with
// the arena. The arena outlives it.
#pragma once

#include <memory>
#include <new>
#include <utility>

#include "server/bytes/call_arena.h"

namespace weir {

struct DestroyInArena {
  template <typename T>
  void operator()(T* object) const {
    std::destroy_at(object);
  }
};

template <typename T>
using ArenaPtr = std::unique_ptr<T, DestroyInArena>;

template <typename T, typename... Args>
ArenaPtr<T> MakeInArena(CallArena* arena, Args&&... args) {
  void* const room = arena->allocate(sizeof(T), alignof(T));
  return ArenaPtr<T>(new (room) T(std::forward<Args>(args)...));
}

}  // namespace weir
