#include "server/scheduling/admission.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {

void Admission::Ticket::Reset() {
  if (admission_ == nullptr) return;
  admission_->requests_.fetch_sub(1, std::memory_order_relaxed);
  admission_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  admission_ = nullptr;
}

absl::StatusOr<Admission::Ticket> Admission::Admit(size_t bytes, Nanos deadline,
                                                   Nanos now) {
  if (deadline <= now) {
    return absl::DeadlineExceededError(
        "the deadline had passed before the request was admitted");
  }
  const int64_t size = static_cast<int64_t>(bytes);
  Ticket ticket(this, size);
  const int64_t requests =
      requests_.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t total =
      bytes_.fetch_add(size, std::memory_order_relaxed) + size;
  if (requests > max_requests_) {
    return Refuse("requests", "--queue-length", "QUEUE_FULL", max_requests_);
  }
  // One request alone may always run: messages have a bound of their own.
  if (total > max_bytes_ && total > size) {
    return Refuse("bytes", "--queue-bytes", "QUEUE_BYTES_FULL", max_bytes_);
  }
  return ticket;
}

absl::Status Admission::Refuse(const char* what, const char* flag,
                               const char* reason, int64_t limit) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  return WithRetryAfter(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       "the server holds its limit of ", limit,
                                       " ", what, " in flight (", flag, ")")),
                                   reason, {{"limit", absl::StrCat(limit)}}),
                        absl::Milliseconds(20));
}

}  // namespace weir
