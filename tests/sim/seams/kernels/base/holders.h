// Who holds an object, as the simulation has it: see tests/sim/logical.h.
#pragma once

#include <cstring>
#include <memory>

#include "tests/sim/logical.h"

namespace weir {

// Where libstdc++ counts: behind the object's address a pointer has that of its
// counts, which begin with a pointer to virtual functions. Null: it is empty.
template <typename Pointer>
const void* CountsOf(const Pointer& pointer) {
  const char* words[2] = {};
  static_assert(sizeof(pointer) == sizeof(words));
  std::memcpy(static_cast<void*>(words), static_cast<const void*>(&pointer),
              sizeof(words));
  return words[1] == nullptr ? nullptr : words[1] + sizeof(void*);
}

template <typename T>
bool HeldByOthers(const std::shared_ptr<T>& object, int known = 1) {
  const void* const counts = CountsOf(object);
  return counts != nullptr && sim::IsHeld(counts, known);
}

template <typename T>
std::shared_ptr<T> HoldIfThere(const std::weak_ptr<T>& object) {
  const void* const counts = CountsOf(object);
  if (counts == nullptr || !sim::IsHeld(counts, 0)) return nullptr;
  return object.lock();
}

}  // namespace weir
