// What a call does whose caller streams its messages.
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/unary_call.h"

namespace weir {

void UnaryCall::BeginStream() {
  if (Admission* admission = this->admission()) {
    auto ticket = admission->Admit(kCallBytes, deadline_, received_, kind());
    if (!ticket.ok()) return Fail(ticket.status());
    ticket_ = *std::move(ticket);
  }
  method().reads(*this);
  if (!answered_) WatchForClose();
}

void UnaryCall::Read(ReadFn fn, void* arg) {
  if (closed_) return;
  read_ = fn;
  read_arg_ = arg;
  // Whoever has begun may take his time; who does not begin takes room.
  if (!std::exchange(opened_, true)) {
    BeginUpload();
    if (!MayAwait()) return;
  }
  AwaitMessage();
}

// Of a caller who has gone OnClosed tells.
void UnaryCall::OnStreamMessage() {
  grpc_byte_buffer* const received = message_.Take();
  if (received == nullptr) {
    if (!grpc_call_failed_before_recv_message(call_)) Deliver(nullptr);
    return;
  }
  stream_message_ = std::make_shared<StreamMessage>(received);
  if (absl::Status taken = TakeStreamMessage(); !taken.ok()) Deliver(taken);
}

absl::Status UnaryCall::TakeStreamMessage() {
  const size_t limit = max_message_bytes();
  WEIR_RETURN_IF_ERROR(CheckMessageSize(stream_message_->received_bytes(),
                                        limit, message_bound()));
  WEIR_ASSIGN_OR_RETURN(const bool compressed,
                        stream_message_->Admit(admission(), io_->policy_.now(),
                                               limit, message_bound()));
  if (compressed) {
    InflateStreamMessage();
    return absl::OkStatus();
  }
  WEIR_RETURN_IF_ERROR(stream_message_->View());
  Deliver(std::move(stream_message_));
  return absl::OkStatus();
}

void UnaryCall::InflateStreamMessage() {
  const absl::StatusOr<bool> whole = stream_message_->Inflate();
  if (!whole.ok()) return Deliver(whole.status());
  if (!*whole) return GoOnInflating();
  if (absl::Status seen = stream_message_->View(); !seen.ok()) {
    return Deliver(seen);
  }
  Deliver(std::move(stream_message_));
}

void UnaryCall::Deliver(MessageOr message) {
  stream_message_.reset();
  const ReadFn fn = std::exchange(read_, nullptr);
  if (fn == nullptr) return;  // it was cut, and told so
  fn(*this, std::move(message), read_arg_);
}

void UnaryCall::Defer(ResumeFn fn, void* arg) {
  deferred_.fn = fn;
  deferred_.arg = arg;
  ++events_;
  io_->AwaitTurn(&deferred_);
}

void UnaryCall::OnDeferred() {
  const Entry entry(this);
  --events_;
  if (!answered_) deferred_.fn(*this, deferred_.arg);
}

void UnaryCall::Finish() {
  const Entry entry(this);
  if (!BeginAnswer(absl::OkStatus())) return;
  ticket_.Answered(call_bytes() + UnwrittenBytes());
  EnterSending(answered_at_);
  Send(absl::OkStatus(), !begun_);
}

}  // namespace weir
