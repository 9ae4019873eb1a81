// One message of those that a caller streams: its bytes, what they count for
// until it ends, and an arena for what is made of it. Made by the call that
// receives it; whoever has it may keep it beyond that. Used by one thread at a
// time, whichever; several may read its bytes.
#pragma once

#include <grpc/byte_buffer.h>

#include <memory>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/message_inflater.h"
#include "server/rpc/message_view.h"
#include "server/scheduling/admission.h"

namespace weir {

class StreamMessage {
 public:
  // `received` is this object's from here on.
  explicit StreamMessage(grpc_byte_buffer* received)
      : received_(received), arena_(&ChargeArena, this) {}
  ~StreamMessage() { Drop(); }
  StreamMessage(const StreamMessage&) = delete;
  StreamMessage& operator=(const StreamMessage&) = delete;

  const ByteView& bytes() const { return bytes_; }
  // It came compressed: it may be a thousand times what its caller sent.
  bool inflated() const { return inflater_ != nullptr; }
  CallArena& arena() { return arena_; }

  // -- For the transport, until others have it.

  // As it came.
  size_t received_bytes() const {
    return received_->data.raw.slice_buffer.length;
  }
  // Whether it is to be undone first. Errors as Admission::Admit, which it
  // counts with unless that is null, and MessageInflater::Create.
  absl::StatusOr<bool> Admit(Admission* admission, Nanos now, size_t max_bytes,
                             const char* bound);
  // As MessageInflater::Step.
  absl::StatusOr<bool> Inflate();
  // When all of it is there.
  absl::Status View();

 private:
  static absl::Status ChargeArena(void* message, size_t bytes) {
    return static_cast<StreamMessage*>(message)->ticket_.Charge(bytes);
  }
  void Drop();

  Admission::Ticket ticket_;
  grpc_byte_buffer* received_;
  std::unique_ptr<MessageInflater> inflater_;
  MessageCopies copies_;
  ByteView bytes_;
  CallArena arena_;
};

}  // namespace weir
