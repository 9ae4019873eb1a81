#include "server/rpc/stream_message.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/rpc/call_policy.h"

namespace weir {

absl::StatusOr<bool> StreamMessage::Admit(Admission* admission, Nanos now,
                                          size_t max_bytes, const char* bound) {
  const auto& raw = received_->data.raw;
  if (admission != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        ticket_, admission->Admit(raw.slice_buffer.length + kCallBytes,
                                  kNoDeadline, now, Admission::Kind::kStream));
    WEIR_RETURN_IF_ERROR(ticket_.Charge(raw.slice_buffer.count * kSliceBytes));
  }
  if (raw.compression == GRPC_COMPRESS_NONE) return false;
  WEIR_ASSIGN_OR_RETURN(
      inflater_, MessageInflater::Create(raw.compression, &raw.slice_buffer,
                                         max_bytes, bound));
  return true;
}

absl::StatusOr<bool> StreamMessage::Inflate() {
  WEIR_ASSIGN_OR_RETURN(const bool whole, inflater_->Step([this](size_t bytes) {
    return ticket_.Charge(bytes);
  }));
  if (whole) ticket_.Refund(MessageInflater::kStateBytes);
  return whole;
}

absl::Status StreamMessage::View() {
  if (inflater_ != nullptr) {
    WEIR_ASSIGN_OR_RETURN(bytes_, ViewInflated(*inflater_, &arena_));
    Drop();
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(
      const MessageView view,
      ViewReceived(&received_->data.raw.slice_buffer, &arena_, &copies_));
  bytes_ = view.bytes;
  if (view.copied) Drop();
  return absl::OkStatus();
}

void StreamMessage::Drop() {
  if (received_ == nullptr) return;
  grpc_byte_buffer_destroy(std::exchange(received_, nullptr));
}

}  // namespace weir
