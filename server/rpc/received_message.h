// The message of a call, from when gRPC is asked for it. Until gRPC says that
// it is there the place is gRPC's: whichever thread reads the connection writes
// it, in more than one step, and says nothing to the thread of the call. So who
// needs the message no longer may say so at any time, and it goes when both
// agree. Used by the call's I/O thread.
#pragma once

#include <grpc/byte_buffer.h>

#include <utility>

namespace weir {

class ReceivedMessage {
 public:
  ReceivedMessage() = default;
  ~ReceivedMessage() { Drop(); }  // REQUIRES: not awaited
  ReceivedMessage(const ReceivedMessage&) = delete;
  ReceivedMessage& operator=(const ReceivedMessage&) = delete;

  // Where gRPC puts it. REQUIRES: there is none, and none is awaited.
  grpc_byte_buffer** Await() {
    awaited_ = true;
    dropped_ = false;
    return &buffer_;
  }

  // gRPC is done with it, whether it came or not.
  void Arrived() {
    awaited_ = false;
    if (dropped_) Drop();
  }

  // Nobody reads it any more.
  void Drop() {
    dropped_ = awaited_;
    if (awaited_ || buffer_ == nullptr) return;
    grpc_byte_buffer_destroy(std::exchange(buffer_, nullptr));
  }

  // The caller's from here on; null as get().
  grpc_byte_buffer* Take() { return std::exchange(buffer_, nullptr); }

  // Null if none came, or if it was dropped. REQUIRES: not awaited.
  grpc_byte_buffer* get() const { return buffer_; }

 private:
  grpc_byte_buffer* buffer_ = nullptr;
  bool awaited_ = false;
  bool dropped_ = false;  // while it was awaited
};

}  // namespace weir
