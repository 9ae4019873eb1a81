// Who holds an object together with others: the one place from which what the
// simulation (tests/sim) runs decides by the counts of a shared_ptr, so that it
// can put its own in its place and let others go on before it looks.
#pragma once

#include <memory>

namespace weir {

// Whether anybody holds it beside so many who are known to.
template <typename T>
bool HeldByOthers(const std::shared_ptr<T>& object, int known = 1) {
  return object.use_count() > known;
}

// Holds what is held weakly; null if it is gone.
template <typename T>
std::shared_ptr<T> HoldIfThere(const std::weak_ptr<T>& object) {
  return object.lock();
}

}  // namespace weir
