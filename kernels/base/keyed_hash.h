// A hash of bytes under a secret that the process draws when it starts: whoever
// does not know it finds no two inputs with one hash, as they may for a
// Fingerprint. The bytes are coefficients of a polynomial modulo the prime
// 2^61 - 1, and the secret is where it is taken, so that two inputs of n bytes
// have one hash for about n / 7 of 2^61 secrets. Reads some 5 GB a second. One
// object is used by one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace weir {

class KeyedHash {
 public:
  KeyedHash() : powers_(ProcessPowers()) {}

  // The next bytes; how they are cut does not matter.
  void Add(std::string_view bytes) {
    size_ += bytes.size();
    if (pending_ > 0) {
      const size_t taken = std::min(bytes.size(), kBlock - pending_);
      if (taken > 0) std::memcpy(block_ + pending_, bytes.data(), taken);
      pending_ += taken;
      bytes.remove_prefix(taken);
      if (pending_ < kBlock) return;
      AddBlock(block_, kWords);
      pending_ = 0;
    }
    // A block's last word is read with the byte behind it.
    while (bytes.size() > kBlock) {
      AddBlock(bytes.data(), kWords);
      bytes.remove_prefix(kBlock);
    }
    if (!bytes.empty()) std::memcpy(block_, bytes.data(), bytes.size());
    pending_ = bytes.size();
  }

  // Of all that was added. Once.
  uint64_t Finish() {
    if (pending_ > 0) {
      const size_t words = (pending_ + kWordBytes - 1) / kWordBytes;
      std::memset(block_ + pending_, 0, words * kWordBytes - pending_);
      AddBlock(block_, words);
    }
    const uint64_t hash =
        Reduce(Product{hash_} * powers_[2] + Product{size_} * powers_[1]);
    return hash >= kPrime ? hash - kPrime : hash;
  }

 private:
  using Product = unsigned __int128;

  static constexpr size_t kWordBytes = 7;  // a word is less than the prime
  static constexpr size_t kWords = 64;
  static constexpr size_t kBlock = kWords * kWordBytes;
  static constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

  // Of the secret: 0 to kWords.
  using Powers = std::array<uint64_t, kWords + 1>;

  static const Powers& ProcessPowers() {
    static const Powers powers = [] {
      std::random_device device;
      Powers drawn{1};
      do {
        drawn[1] = ((uint64_t{device()} << 32) | device()) & kPrime;
      } while (drawn[1] < 2 || drawn[1] == kPrime);
      for (size_t i = 2; i <= kWords; ++i) {
        drawn[i] = Reduce(Product{drawn[i - 1]} * drawn[1]);
      }
      return drawn;
    }();
    return powers;
  }

  // Modulo the prime, or up to 8 above it. `x` is below 2^124.
  static uint64_t Reduce(Product x) {
    const uint64_t sum =
        (static_cast<uint64_t>(x) & kPrime) + static_cast<uint64_t>(x >> 61);
    return (sum & kPrime) + (sum >> 61);
  }

  Product Term(const char* bytes, size_t i) const {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i * kWordBytes, sizeof(word));
    return Product{word & ((uint64_t{1} << (8 * kWordBytes)) - 1)} * powers_[i];
  }

  // Reads one byte more than the words have.
  void AddBlock(const char* bytes, size_t words) {
    // Side by side, for one sum waits for its carries.
    Product even = 0;
    Product odd = 0;
    size_t i = 0;
    for (; i + 2 <= words; i += 2) {
      even += Term(bytes, i);
      odd += Term(bytes, i + 1);
    }
    if (i < words) even += Term(bytes, i);
    // 64 products of a word and a power are below 2^123.
    hash_ = Reduce(Product{hash_} * powers_[kWords] + Reduce(even + odd));
  }

  const Powers& powers_;
  uint64_t hash_ = 0;
  uint64_t size_ = 0;
  size_t pending_ = 0;
  char block_[kBlock + 1];  // the first pending_
};

}  // namespace weir
