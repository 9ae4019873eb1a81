// Arithmetic on sizes and counts that come from strangers: what does not fit
// into 63 bits is kSaturated, which is above every limit and stays so. The
// operands are not negative. Pure; any thread.
#pragma once

#include <cstdint>
#include <limits>

namespace weir {

inline constexpr int64_t kSaturated = std::numeric_limits<int64_t>::max();

inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSaturated : sum;
}

inline int64_t SaturatingMul(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kSaturated : product;
}

}  // namespace weir
