// What the calls of one transport have in common: their bounds, and counts of
// those that met one. Made by Transport, outlives its I/O threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kernels/base/clock.h"

namespace weir {

class Admission;
class FrameGuard;

struct CallPolicy {
  Nanos (*now)() = &NowNanos;
  // Ends connections whose clients take no more of what is being written; null:
  // nobody does.
  FrameGuard* guard = nullptr;
  Admission* admission = nullptr;  // null: every call is admitted
  size_t max_message_bytes = SIZE_MAX;
  // Longest that a call may wait for its message to be whole, and its reply for
  // the caller to take more of it; kNoDeadline: forever.
  Nanos receive_timeout = kNoDeadline;
  Nanos send_timeout = kNoDeadline;
  // Of one I/O thread: calls whose message is not whole. One more ends the one
  // that waits longest of those of the peer that has most.
  size_t max_receiving = SIZE_MAX;
  // Of one I/O thread: calls without a ticket whose answer, an error, is not
  // sent yet. A peer may have as many as are left; one more of it is reset
  // instead of being answered.
  size_t max_refusals = SIZE_MAX;
  // Of a call's headers, counted as HTTP/2 does: 32 bytes for each, and what it
  // holds. Clients that read HTTP/2's settings meet neither this nor the next.
  size_t max_header_bytes = SIZE_MAX;
  // Calls of one connection on one I/O thread.
  size_t max_connection_calls = SIZE_MAX;
};

// Messages of methods that are not what the server is for. Protobuf parses
// them on the I/O thread, and may make some 60 bytes of one: an empty field
// that it does not know becomes an object.
inline constexpr size_t kMaxSmallMessageBytes = size_t{64} << 10;

// What a call holds beside its message and its reply: our object, and gRPC's.
inline constexpr size_t kCallBytes = size_t{8} << 10;

// What gRPC takes for each piece that a message came in, beside the piece: at
// least one for each frame of HTTP/2, of which a client may make one a byte.
inline constexpr size_t kSliceBytes = 48;

// A piece lies in what was read from the connection at once, other calls' bytes
// among it, and keeps all of that. One of fewer bytes than this is copied
// instead, up to so many bytes of a message: it is done on the I/O thread.
inline constexpr size_t kSmallPieceBytes = size_t{8} << 10;
inline constexpr size_t kMostCopiedBytes = size_t{1} << 20;

// A reply has the send timeout and this much for each MiB of it: gRPC does not
// say how much of a message has left before all of it has.
inline constexpr Nanos kSendTimePerMebibyte = 1'000'000'000;

// While other calls hold more than half of the bytes in flight, the room is
// needed more, and a reader has this long.
inline constexpr Nanos kSendTimeoutUnderPressure = 1'000'000'000;
inline constexpr Nanos kSendTimePerMebibyteUnderPressure = 62'500'000;

// A reply that is cut has this long to go: if gRPC has begun to write it, its
// connection must end first.
inline constexpr Nanos kCutReplyGoesWithin = 1'000'000'000;

struct CallCounts {
  std::atomic<uint64_t> uploads_timed_out{0};
  std::atomic<uint64_t> uploads_displaced{0};
  std::atomic<uint64_t> replies_cut{0};
  std::atomic<uint64_t> replies_abandoned{0};  // by the caller
};

}  // namespace weir
