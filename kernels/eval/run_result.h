// What a run leaves to whoever asked for it. Part of Work, which says when it
// may be read; a work that is kept for its next use keeps none of it that
// nobody reads.
#pragma once

#include <cstddef>

#include "absl/container/inlined_vector.h"
#include "kernels/device/pinned_pool.h"
#include "kernels/tensor/tensor.h"

namespace weir {

struct RunResult {
  PinnedBuffer buffer;                  // behind all inline outputs
  const std::byte* bytes = nullptr;     // where they begin
  absl::InlinedVector<Tensor, 2> kept;  // per output, or none at all

  void Reset() {
    buffer.Reset();
    kept.clear();
  }
};

}  // namespace weir
