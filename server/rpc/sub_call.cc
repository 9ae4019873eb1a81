#include "server/rpc/sub_call.h"

#include <algorithm>
#include <utility>

#include "kernels/base/clock.h"

namespace weir {

SubCall::SubCall(ServerCall* parent) : parent_(parent) {
  peer_ = parent->peer_;
  inflated_ = parent->inflated_;
  deadline_ = parent->deadline_;
  payer_ = parent->payer_;
}

void SubCall::Run(const MethodHandler& handler, const ByteView& request,
                  size_t reply_bytes, DoneFn done, void* arg) {
  arena_.Reset();
  request_ = request;
  received_ = NowNanos();
  max_reply_bytes_ = std::min(reply_bytes, parent_->max_reply_bytes_);
  status_ = absl::OkStatus();
  reply_ = ReplyBuffer();
  done_ = done;
  done_arg_ = arg;
  parent_->OnCancel(
      [](ServerCall&, void* self) {
        static_cast<SubCall*>(self)->SetCancelled();
      },
      this);
  handler(*this);
}

void SubCall::Resume(ResumeFn fn, void* arg) {
  resume_ = fn;
  resume_arg_ = arg;
  parent_->Resume(
      [](ServerCall&, void* arg) {
        auto* const self = static_cast<SubCall*>(arg);
        self->resume_(*self, self->resume_arg_);
      },
      this);
}

void SubCall::Reply(ReplyBuffer reply) {
  // However little it is: it stays while others are made.
  absl::Status fits = CheckReplySize(reply.size());
  if (fits.ok()) fits = Charge(reply.held());
  if (fits.ok()) reply_ = std::move(reply);
  Answer(std::move(fits));
}

void SubCall::Fail(const absl::Status& error) { Answer(error); }

void SubCall::Write(ReplyBuffer, ResumeFn, void*) {
  Answer(absl::InternalError("a command streams its replies"));
}

void SubCall::Answer(absl::Status status) {
  ForgetCancel();
  parent_->ForgetCancel();
  status_ = std::move(status);
  done_(done_arg_);
}

}  // namespace weir
