// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random
// Numbers: As Easy as 1, 2, 3" (SC 2011). A pure function of (key, counter), so
// that the same seed gives the same numbers on every device and thread. Also
// compiled by NVRTC: it includes nothing but fixed-width integers and math.
#pragma once

#ifndef __CUDACC_RTC__
#include <cmath>
#include <cstdint>
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WEIR_HOST_DEVICE __host__ __device__
#else
#define WEIR_HOST_DEVICE
#endif

namespace weir {

struct PhiloxBlock {
  uint32_t word[4];
};

// 128 random bits for the 64-bit `seed` and the 128-bit counter (stream,
// index).
WEIR_HOST_DEVICE inline PhiloxBlock Philox(uint64_t seed, uint64_t stream,
                                           uint64_t index) {
  uint32_t c0 = static_cast<uint32_t>(index);
  uint32_t c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream);
  uint32_t c3 = static_cast<uint32_t>(stream >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t hi0 = static_cast<uint32_t>(p0 >> 32);
    const uint32_t hi1 = static_cast<uint32_t>(p1 >> 32);
    c0 = hi1 ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = hi0 ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Bits of a stream's number that tell rows apart; those above tell nodes apart.
inline constexpr int kPhiloxRowBits = 44;

// Uniform in [0, 1): the top 24 bits, so that every value is exact in float.
WEIR_HOST_DEVICE inline float PhiloxUniform(uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

// Uniform in [low, high), by one rounding, so that all devices agree; low where
// the range is empty.
WEIR_HOST_DEVICE inline float PhiloxUniform(uint32_t word, float low,
                                            float high) {
  const float value = fmaf(PhiloxUniform(word), high - low, low);
  return value < high ? value : low;
}

}  // namespace weir
