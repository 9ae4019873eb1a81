// A 64-bit fingerprint of bytes: the same in every process on machines of one
// byte order. For names that people compare, not for keys: whoever wants two
// inputs with one fingerprint finds them. Pure; any thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace weir {

// `seed` chains fingerprints: it stands for what came before.
inline uint64_t Fingerprint(std::string_view bytes, uint64_t seed = 0) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;  // odd, well mixed bits
  const auto mix = [](uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * kFactor;
    return hash ^ (hash >> 32);
  };
  uint64_t hash = mix(mix(kFactor, seed), bytes.size());
  while (!bytes.empty()) {
    const size_t taken = bytes.size() < 8 ? bytes.size() : 8;
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), taken);
    hash = mix(hash, word);
    bytes.remove_prefix(taken);
  }
  return mix(hash, 0);
}

}  // namespace weir
