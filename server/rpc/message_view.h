// A message that was received, as those see it who read it: the pieces that it
// lies in. Pure; used by the message's thread.
#pragma once

#include <grpc/slice_buffer.h>

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/message_inflater.h"

namespace weir {

// Where small pieces are copied to that do not fit an arena's little room.
using MessageCopies = std::unique_ptr<std::byte[]>;

struct MessageView {
  ByteView bytes;
  bool copied = false;  // all of it: `received` is not needed any more
};

// RESOURCE_EXHAUSTED, reason MESSAGE_TOO_LARGE, for more bytes than `limit`,
// which is of what `bound` says.
absl::Status CheckMessageSize(size_t bytes, size_t limit, const char* bound);

// Of `received`, whose small pieces are copied, up to kMostCopiedBytes, and let
// go. What is left of it stays, with the arena and the copies.
absl::StatusOr<MessageView> ViewReceived(grpc_slice_buffer* received,
                                         CallArena* arena,
                                         MessageCopies* copies);

// Of what was undone, and stays.
absl::StatusOr<ByteView> ViewInflated(const MessageInflater& inflater,
                                      CallArena* arena);

}  // namespace weir
