// A reply's bytes as a list of slices: small parts are copied, large ones stay
// where they are and are referenced until the transport has sent them. Owned by
// one thread at a time; release callbacks run on any thread.
#pragma once

#include <grpc/slice.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace weir {

// How much of a reply has left, as far as one can tell: whether it goes on. Of
// a small reply nothing is known before all of it has left. Outlives the
// reply; any thread.
class ReplyProgress {
 public:
  ReplyProgress() = default;
  ReplyProgress(ReplyProgress&& other) noexcept
      : count_(std::exchange(other.count_, nullptr)) {}
  ReplyProgress& operator=(ReplyProgress&& other) noexcept {
    std::swap(count_, other.count_);
    return *this;
  }
  ~ReplyProgress() { Drop(count_); }

  // Grows whenever a part has left.
  uint64_t parts_sent() const {
    return count_ == nullptr ? 0 : count_->parts.load();
  }

 private:
  friend class ReplyBuffer;
  struct Count {
    std::atomic<uint64_t> parts{0};
    std::atomic<int> references{1};
  };
  static void Drop(Count* count) {
    if (count != nullptr && count->references.fetch_sub(1) == 1) delete count;
  }
  Count* count_ = nullptr;
};

class ReplyBuffer {
 public:
  using ReleaseFn = void (*)(void* arg);

  // Referenced bytes beyond this many are handed over in parts of this size, so
  // that one can see them leave.
  static constexpr size_t kPartBytes = size_t{1} << 20;

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
  void AppendForeign(const void* data, size_t size, ReleaseFn release,
                     void* arg);

  size_t size() const { return size_; }
  size_t slice_count() const { return slices_.size(); }

  // For the transport: the slices still belong to this buffer.
  grpc_slice* slices() { return slices_.data(); }
  // The same, but they belong to the caller now.
  template <typename Take>
  void TakeSlices(const Take& take) {
    for (const grpc_slice& slice : slices_) take(slice);
    slices_.clear();
    size_ = 0;
  }
  ReplyProgress TakeProgress() { return std::move(progress_); }

 private:
  // The bytes that several parts lie in.
  struct Parted;

  void Swap(ReplyBuffer& other) {
    slices_.swap(other.slices_);
    std::swap(size_, other.size_);
    std::swap(foreign_, other.foreign_);
    std::swap(progress_.count_, other.progress_.count_);
  }

  absl::InlinedVector<grpc_slice, 6> slices_;
  size_t size_ = 0;
  size_t foreign_ = 0;  // of it
  ReplyProgress progress_;
};

}  // namespace weir
