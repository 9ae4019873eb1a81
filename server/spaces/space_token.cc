#include "server/spaces/space_token.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace weir {
namespace {

constexpr size_t kOriginBytes = 3;

}  // namespace

SpaceToken SpaceToken::New(Origin origin) {
  SpaceToken token;
  token.bytes_[0] = origin.worker;
  token.bytes_[1] = static_cast<uint8_t>(origin.start >> 8);
  token.bytes_[2] = static_cast<uint8_t>(origin.start);
  // The standard library's reads what the system gives for secrets.
  std::random_device random;
  for (size_t at = kOriginBytes; at < kBytes;) {
    const uint32_t word = random();
    const size_t size = std::min(sizeof(word), kBytes - at);
    std::memcpy(&token.bytes_[at], &word, size);
    at += size;
  }
  return token;
}

std::optional<SpaceToken> SpaceToken::Read(std::string_view bytes) {
  if (bytes.size() != kBytes) return std::nullopt;
  SpaceToken token;
  std::memcpy(token.bytes_.data(), bytes.data(), kBytes);
  return token;
}

SpaceToken::Origin SpaceToken::origin() const {
  return {.worker = bytes_[0],
          .start = static_cast<uint16_t>((bytes_[1] << 8) | bytes_[2])};
}

bool operator==(const SpaceToken& a, const SpaceToken& b) {
  uint8_t differs = 0;
  for (size_t i = 0; i < SpaceToken::kBytes; ++i) {
    differs = static_cast<uint8_t>(differs | (a.bytes_[i] ^ b.bytes_[i]));
  }
  return differs == 0;
}

}  // namespace weir
