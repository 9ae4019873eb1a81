// A reply's bytes as a list of slices: small parts are copied, large ones stay
// where they are and are referenced until the transport has sent them. Owned by
// one thread at a time; release callbacks run on any thread.
#pragma once

#include <grpc/slice.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/foreign_bytes.h"

namespace weir {

class ReplyBuffer {
 public:
  using ReleaseFn = ForeignBytes::ReleaseFn;

  ReplyBuffer() = default;
  ReplyBuffer(ReplyBuffer&& other) noexcept { Swap(other); }
  ReplyBuffer& operator=(ReplyBuffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~ReplyBuffer();

  // Copies `bytes`.
  void AppendCopy(std::string_view bytes);

  // Room for `size` bytes at the end, to be filled before the next Append.
  char* AppendUninitialized(size_t size);

  // References `size` bytes at `data`, which stay unchanged until the transport
  // calls release(arg), exactly once, whether or not the reply was sent.
  // `beside`: more bytes that cannot be freed before that.
  void AppendForeign(const void* data, size_t size, ReleaseFn release,
                     void* arg, size_t beside = 0);

  // Takes over all that `other` has, at the end.
  void Append(ReplyBuffer other);

  // To where there is room for size() bytes.
  void CopyTo(char* out) const;

  size_t size() const { return size_; }
  // Of memory, until all of it is sent: its size, and what lies beside.
  size_t held() const { return size_ + beside_; }
  size_t slice_count() const { return slices_.size(); }
  // Where its bytes lie, in order, as long as it has them.
  std::vector<BytePiece> Pieces() const;

  // For the transport: the slices still belong to this buffer.
  grpc_slice* slices() { return slices_.data(); }
  // The same, but they belong to the caller now.
  template <typename Take>
  void TakeSlices(const Take& take) {
    for (const grpc_slice& slice : slices_) take(slice);
    slices_.clear();
    size_ = beside_ = 0;
  }

 private:
  void Swap(ReplyBuffer& other) {
    slices_.swap(other.slices_);
    std::swap(size_, other.size_);
    std::swap(beside_, other.beside_);
  }

  absl::InlinedVector<grpc_slice, 6> slices_;
  size_t size_ = 0;
  size_t beside_ = 0;
};

}  // namespace weir
