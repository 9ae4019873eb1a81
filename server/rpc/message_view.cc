#include "server/rpc/message_view.h"

#include <grpc/slice.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/call_policy.h"

namespace weir {
namespace {

BytePiece PieceOf(const grpc_slice& slice) {
  return {reinterpret_cast<const std::byte*>(GRPC_SLICE_START_PTR(slice)),
          GRPC_SLICE_LENGTH(slice)};
}

bool IsSmall(const grpc_slice& slice) {
  return GRPC_SLICE_LENGTH(slice) < kSmallPieceBytes;
}

// They count with the message, of which they take the place; those in the
// arena may count besides.
absl::StatusOr<std::span<std::byte>> RoomForCopies(size_t bytes,
                                                   CallArena* arena,
                                                   MessageCopies* copies) {
  if (bytes <= CallArena::kLittleBytes) {
    return arena->TryAllocateSpan<std::byte>(bytes);
  }
  *copies = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return std::span<std::byte>(copies->get(), bytes);
}

}  // namespace

absl::Status CheckMessageSize(size_t bytes, size_t limit, const char* bound) {
  if (bytes <= limit) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat("the message has ", bytes,
                                                " bytes; the most ", bound,
                                                " is ", limit)),
      "MESSAGE_TOO_LARGE",
      {{"bytes", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit)}});
}

absl::StatusOr<MessageView> ViewReceived(grpc_slice_buffer* received,
                                         CallArena* arena,
                                         MessageCopies* copies) {
  const size_t size = received->length;
  const std::span<grpc_slice> slices(received->slices, received->count);
  size_t to_copy = 0;
  for (const grpc_slice& slice : slices) {
    if (IsSmall(slice)) to_copy += GRPC_SLICE_LENGTH(slice);
  }
  to_copy = std::min(to_copy, kMostCopiedBytes);
  WEIR_ASSIGN_OR_RETURN(const std::span<BytePiece> pieces,
                        arena->TryAllocateSpan<BytePiece>(slices.size()));
  WEIR_ASSIGN_OR_RETURN(std::span<std::byte> room,
                        RoomForCopies(to_copy, arena, copies));
  size_t count = 0, copied = 0;
  bool joins = false;  // the piece before was copied
  for (grpc_slice& slice : slices) {
    const BytePiece piece = PieceOf(slice);
    if (piece.empty()) continue;
    if (!IsSmall(slice) || piece.size() > room.size()) {
      pieces[count++] = piece;
      joins = false;
      continue;
    }
    std::memcpy(room.data(), piece.data(), piece.size());
    if (joins) {
      BytePiece& last = pieces[count - 1];
      last = BytePiece(last.data(), last.size() + piece.size());
    } else {
      pieces[count++] = BytePiece(room.data(), piece.size());
    }
    room = room.subspan(piece.size());
    copied += piece.size();
    joins = true;
    grpc_slice_unref(std::exchange(slice, grpc_empty_slice()));
  }
  return MessageView{ByteView(pieces.first(count), size), copied == size};
}

absl::StatusOr<ByteView> ViewInflated(const MessageInflater& inflater,
                                      CallArena* arena) {
  const std::vector<BytePiece> inflated = inflater.pieces();
  WEIR_ASSIGN_OR_RETURN(const std::span<BytePiece> pieces,
                        arena->TryAllocateSpan<BytePiece>(inflated.size()));
  std::copy(inflated.begin(), inflated.end(), pieces.begin());
  return ByteView(pieces, inflater.size());
}

}  // namespace weir
