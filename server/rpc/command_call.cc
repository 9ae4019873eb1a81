#include "server/rpc/command_call.h"

#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/call_policy.h"

namespace weir {

CommandCall::CommandCall(const CommandCaller* caller, Client* client)
    : caller_(caller), client_(client) {
  peer_ = caller->peer;
  max_reply_bytes_ = caller->max_reply_bytes;
  resume_.call = cancel_.call = this;
  resume_.run = [](InboxNode* node) {
    CommandCall* const call = static_cast<Node*>(node)->call;
    call->resume_fn_(*call, call->resume_arg_);
  };
  cancel_.run = [](InboxNode* node) {
    static_cast<Node*>(node)->call->OnCancelled();
  };
}

absl::Status CommandCall::Run(const MethodHandler& handler,
                              std::shared_ptr<const StreamMessage> message,
                              const ByteView& request) {
  received_ = NowNanos();
  if (caller_->admission != nullptr) {
    WEIR_ASSIGN_OR_RETURN(
        ticket_, caller_->admission->Admit(kCallBytes, kNoDeadline, received_,
                                           Admission::Kind::kStream));
  }
  io_->BeginGuest();
  inflated_ = message->inflated();
  message_ = std::move(message);
  request_ = request;
  answered_ = false;
  answered_at_ = 0;
  work_number_ = 0;
  request_id_size_ = label_size_ = 0;
  gone_.store(false, std::memory_order_relaxed);
  handler(*this);
  return absl::OkStatus();
}

void CommandCall::Cancel() {
  cancel_posted_ = true;
  io_->Post(&cancel_);
}

void CommandCall::OnCancelled() {
  cancel_posted_ = false;
  if (answered_) return client_->Released(*this);
  SetCancelled();
}

void CommandCall::Launched() {
  ServerCall::Launched();
  client_->Accepted(*this);
}

void CommandCall::Resume(ResumeFn fn, void* arg) {
  resume_fn_ = fn;
  resume_arg_ = arg;
  io_->Post(&resume_);
}

std::optional<std::string_view> CommandCall::Header(
    std::string_view name) const {
  if (name != caller_->header) return std::nullopt;
  return caller_->value;
}

void CommandCall::Reply(ReplyBuffer reply) {
  // However little it is: it stays while others are made.
  absl::Status fits = CheckReplySize(reply.size());
  if (fits.ok()) fits = Charge(reply.held());
  if (!fits.ok()) reply = ReplyBuffer();
  Answer(std::move(fits), std::move(reply));
}

void CommandCall::Fail(const absl::Status& error) {
  Answer(error, ReplyBuffer());
}

void CommandCall::Write(ReplyBuffer, ResumeFn, void*) {
  Answer(absl::InternalError("a command streams its replies"), ReplyBuffer());
}

void CommandCall::Answer(absl::Status status, ReplyBuffer reply) {
  ForgetCancel();
  answered_ = true;
  answered_at_ = NowNanos();
  request_ = ByteView();
  message_.reset();
  ticket_.Answered(reply.held());
  arena_.Reset();
  IoThread* const io = io_;
  client_->Answered(*this, std::move(status), std::move(reply));
  io->EndGuest();
}

}  // namespace weir
