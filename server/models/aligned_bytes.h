// Bytes of a constant, aligned so that a CPU uses them where they lie.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "kernels/base/alignment.h"

namespace weir {

struct AlignedDelete {
  void operator()(std::byte* data) const {
    ::operator delete[](data, std::align_val_t(kVectorAlignment));
  }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;

// Null if there is no memory for so many.
inline AlignedBytes TryMakeBytes(size_t size) {
  return AlignedBytes(static_cast<std::byte*>(::operator new[](
      size, std::align_val_t(kVectorAlignment), std::nothrow)));
}

}  // namespace weir
