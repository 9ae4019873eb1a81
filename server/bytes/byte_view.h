// Bytes that lie in several pieces, as a message arrives in slices. A view: it
// owns neither the bytes nor the list of pieces. Any thread may read it while
// both live.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

namespace weir {

using BytePiece = std::span<const std::byte>;

class ByteView {
 public:
  ByteView() = default;
  ByteView(std::span<const BytePiece> pieces, size_t size)
      : pieces_(pieces), size_(size) {}

  std::span<const BytePiece> pieces() const { return pieces_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool contiguous() const { return pieces_.size() <= 1; }

  // `out` must have room for size() bytes.
  void CopyTo(std::byte* out) const {
    for (const BytePiece& piece : pieces_) {
      if (piece.empty()) continue;
      std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }

 private:
  std::span<const BytePiece> pieces_;
  size_t size_ = 0;
};

}  // namespace weir
