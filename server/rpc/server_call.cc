#include "server/rpc/server_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "server/scheduling/identity.h"

namespace weir {

void ServerCall::set_request_id(std::string_view id) {
  request_id_size_ = std::min(id.size(), kMaxRequestIdBytes);
  if (request_id_size_ > 0) {
    std::memcpy(request_id_.data(), id.data(), request_id_size_);
  }
}

void ServerCall::set_label(std::string_view label) {
  label_size_ = label.copy(label_.data(), kMaxLabelBytes);
}

const std::string& ServerCall::identity() {
  if (identity_.empty()) identity_ = FindIdentity();
  if (identity_.empty()) identity_ = kAnonymous;
  return identity_;
}

absl::Status ServerCall::CheckReplySize(size_t bytes,
                                        std::string_view remedy) const {
  if (bytes <= max_reply_bytes_) return absl::OkStatus();
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the reply has ", bytes, " bytes, more than a message may have (",
          max_reply_bytes_, ", --max-message-bytes): ", AbslView(remedy))),
      "REPLY_TOO_LARGE",
      {{"bytes", absl::StrCat(bytes)},
       {"limit", absl::StrCat(max_reply_bytes_)},
       {"flag", "--max-message-bytes"}});
}

absl::Status ServerCall::StillWanted(Nanos now) const {
  if (cancelled()) return absl::CancelledError("the caller has gone");
  if (now >= deadline_) {
    return absl::DeadlineExceededError(
        "the deadline passed before the call was answered");
  }
  return absl::OkStatus();
}

void ServerCall::OnCancel(ResumeFn fn, void* arg) {
  if (cancelled()) {
    fn(*this, arg);
    return;
  }
  on_cancel_ = fn;
  on_cancel_arg_ = arg;
}

void ServerCall::SetCancelled() {
  gone_.store(true, std::memory_order_release);
  if (ResumeFn fn = std::exchange(on_cancel_, nullptr)) {
    fn(*this, on_cancel_arg_);
  }
}

}  // namespace weir
