// A context's random state: a seed and a position that grows by one with every
// evaluation that draws numbers and brings no seed of its own. Plain value;
// exported and imported as it is.
#pragma once

#include <cstdint>

#include "kernels/base/philox.h"

namespace weir {

struct RngState {
  uint64_t seed = 0;
  uint64_t position = 0;

  // The seed of the next evaluation. Independent of thread and device.
  uint64_t Next() {
    const PhiloxBlock block = Philox(seed, kEvaluationStream, position++);
    return (uint64_t{block.word[1]} << 32) | block.word[0];
  }

  // No operator draws from this Philox stream (ordinals stay below 2^20 - 1).
  static constexpr uint64_t kEvaluationStream = ~uint64_t{0};
};

}  // namespace weir
