#include "server/rpc/reply_buffer.h"

#include <algorithm>
#include <cstring>

namespace weir {

struct ReplyBuffer::Parted {
  std::atomic<size_t> parts;  // that have not left
  ReleaseFn release;
  void* arg;
  ReplyProgress::Count* progress;

  static void Left(void* self) {
    auto* const parted = static_cast<Parted*>(self);
    parted->progress->parts.fetch_add(1);
    if (parted->parts.fetch_sub(1) > 1) return;
    parted->release(parted->arg);
    ReplyProgress::Drop(parted->progress);
    delete parted;
  }
};

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
                                ReleaseFn release, void* arg) {
  if (size == 0) {
    release(arg);
    return;
  }
  size_ += size;
  foreign_ += size;
  auto* from = static_cast<std::byte*>(const_cast<void*>(data));
  if (foreign_ <= kPartBytes) {
    slices_.push_back(grpc_slice_new_with_user_data(from, size, release, arg));
    return;
  }
  if (progress_.count_ == nullptr) {
    progress_.count_ = new ReplyProgress::Count;
  }
  progress_.count_->references.fetch_add(1);
  auto* const parted = new Parted{
      {(size + kPartBytes - 1) / kPartBytes}, release, arg, progress_.count_};
  for (size_t at = 0; at < size; at += kPartBytes) {
    slices_.push_back(grpc_slice_new_with_user_data(
        from + at, std::min(kPartBytes, size - at), &Parted::Left, parted));
  }
}

}  // namespace weir
