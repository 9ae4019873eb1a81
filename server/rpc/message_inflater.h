// Undoes the compression of a message, gRPC's gzip or deflate, one bounded step
// at a time, so that a message that grows a thousandfold neither holds up its
// I/O thread nor takes memory that it may not have. Used by one thread.
#pragma once

#include <grpc/impl/codegen/compression_types.h>
#include <grpc/slice_buffer.h>
#include <zlib.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/bytes/byte_view.h"

namespace weir {

class MessageInflater {
 public:
  // What one step makes at most, and what it reads at most: a message may
  // consist of blocks that make nothing.
  static constexpr size_t kStepBytes = size_t{256} << 10;
  static constexpr size_t kStepInputBytes = size_t{16} << 10;
  // What zlib has while it works: a window of 32 KiB, and its tables.
  static constexpr size_t kStateBytes = size_t{40} << 10;

  using ChargeFn = absl::FunctionRef<absl::Status(size_t bytes)>;

  // `from` stays as it is until the last step. `max_bytes` bounds what it
  // becomes, and `bound` tells in an error whose bound that is; it outlives the
  // object. UNIMPLEMENTED for an algorithm that is neither.
  static absl::StatusOr<std::unique_ptr<MessageInflater>> Create(
      grpc_compression_algorithm algorithm, const grpc_slice_buffer* from,
      size_t max_bytes, const char* bound);
  ~MessageInflater();
  MessageInflater(const MessageInflater&) = delete;
  MessageInflater& operator=(const MessageInflater&) = delete;

  // True when the message is whole. Each block of memory, and kStateBytes by
  // the first step, is charged before it is taken; what `charge` returns ends
  // the message. INVALID_ARGUMENT for data that is none, RESOURCE_EXHAUSTED
  // (reason MESSAGE_TOO_LARGE) for too much.
  absl::StatusOr<bool> Step(ChargeFn charge);

  // The message, when it is whole; it lies in this object.
  size_t size() const { return size_; }
  std::vector<BytePiece> pieces() const;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    size_t size = 0;
  };

  MessageInflater(int window_bits, const grpc_slice_buffer* from,
                  size_t max_bytes, const char* bound)
      : window_bits_(window_bits),
        from_(from),
        max_bytes_(max_bytes),
        bound_(bound),
        unread_(from->length) {}
  absl::Status Begin(ChargeFn charge);
  absl::Status TakeBlock(ChargeFn charge);
  // Lets zlib read up to `bytes` more. Returns how many.
  size_t Feed(size_t bytes);

  const int window_bits_;  // and the format, as zlib has it
  const grpc_slice_buffer* const from_;
  const size_t max_bytes_;
  const char* const bound_;
  z_stream zlib_ = {};  // has a state from the first step to the last
  size_t slice_ = 0;    // the next byte to be read: where it lies
  size_t slice_offset_ = 0;
  size_t unread_;  // bytes from there on
  std::vector<Block> blocks_;
  size_t size_ = 0;
};

}  // namespace weir
