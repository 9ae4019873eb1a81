// The bucket of a histogram that a value falls into.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace weir {

// The first whose upper bound is not below it; kBounds: above them all. The
// bounds rise.
template <typename Value, size_t kBounds>
size_t BucketOf(const std::array<Value, kBounds>& bounds, Value value) {
  return static_cast<size_t>(
      std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin());
}

}  // namespace weir
