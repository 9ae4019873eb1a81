// The random state of a context that nobody gave a seed: another one each time,
// of the system's random numbers. Any thread.
#pragma once

#include <random>

#include "kernels/eval/rng.h"

namespace weir {

inline RngState FreshRng() {
  std::random_device device;
  return {.seed = (uint64_t{device()} << 32) | device()};
}

}  // namespace weir
