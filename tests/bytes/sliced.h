// Bytes cut into pieces, as a message may arrive.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "server/bytes/byte_view.h"

namespace weir {

// Owns a copy of `bytes` in separate blocks of `piece` bytes each, so that a
// read past the end of one is seen by AddressSanitizer.
class Sliced {
 public:
  Sliced(std::string_view bytes, size_t piece) : size_(bytes.size()) {
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const std::string_view part = bytes.substr(at, piece);
      std::vector<std::byte> block(part.size());
      std::transform(part.begin(), part.end(), block.begin(),
                     [](char c) { return static_cast<std::byte>(c); });
      blocks_.push_back(std::move(block));
    }
    for (const auto& block : blocks_) pieces_.emplace_back(block);
  }

  ByteView view() const { return ByteView(pieces_, size_); }

 private:
  std::vector<std::vector<std::byte>> blocks_;
  std::vector<BytePiece> pieces_;
  size_t size_;
};

inline std::string ToString(const ByteView& view) {
  std::string text(view.size(), '\0');
  view.CopyTo(reinterpret_cast<std::byte*>(text.data()));
  return text;
}

}  // namespace weir
