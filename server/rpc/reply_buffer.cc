#include "server/rpc/reply_buffer.h"

#include <cstring>
#include <span>

namespace weir {

ReplyBuffer::~ReplyBuffer() {
  for (grpc_slice& slice : slices_) grpc_slice_unref(slice);
}

void ReplyBuffer::AppendCopy(std::string_view bytes) {
  if (bytes.empty()) return;
  std::memcpy(AppendUninitialized(bytes.size()), bytes.data(), bytes.size());
}

char* ReplyBuffer::AppendUninitialized(size_t size) {
  slices_.push_back(grpc_slice_malloc(size));
  size_ += size;
  return reinterpret_cast<char*>(GRPC_SLICE_START_PTR(slices_.back()));
}

void ReplyBuffer::AppendForeign(const void* data, size_t size,
                                ReleaseFn release, void* arg, size_t beside) {
  if (size == 0) {
    release(arg);
    return;
  }
  size_ += size;
  beside_ += beside;
  auto* from = static_cast<std::byte*>(const_cast<void*>(data));
  slices_.push_back(grpc_slice_new_with_user_data(from, size, release, arg));
}

void ReplyBuffer::Append(ReplyBuffer other) {
  size_ += other.size_;
  beside_ += other.beside_;
  for (const grpc_slice& slice : other.slices_) slices_.push_back(slice);
  other.slices_.clear();
}

void ReplyBuffer::CopyTo(char* out) const {
  for (const grpc_slice& slice : slices_) {
    const size_t size = GRPC_SLICE_LENGTH(slice);
    std::memcpy(out, GRPC_SLICE_START_PTR(slice), size);
    out += size;
  }
}

std::vector<BytePiece> ReplyBuffer::Pieces() const {
  std::vector<BytePiece> pieces;
  pieces.reserve(slices_.size());
  for (const grpc_slice& slice : slices_) {
    pieces.push_back(std::as_bytes(
        std::span(GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice))));
  }
  return pieces;
}

}  // namespace weir
