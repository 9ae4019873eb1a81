// Where pieces of memory begin. Pure; any thread.
#pragma once

#include <cstddef>

namespace weir {

// Device memory, and each value in a block of it.
inline constexpr size_t kBlockAlignment = 256;
// What vector code reads where it lies, and what it packs for itself.
inline constexpr size_t kVectorAlignment = 64;

// `alignment` is a power of two.
constexpr size_t AlignUp(size_t bytes, size_t alignment = kBlockAlignment) {
  return (bytes + alignment - 1) & ~(alignment - 1);
}

}  // namespace weir
