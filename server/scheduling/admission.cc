#include "server/scheduling/admission.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  admission_ = std::exchange(other.admission_, nullptr);
  bytes_ = other.bytes_;
  queue_ = std::exchange(other.queue_, nullptr);
  if (queue_ == nullptr) return *this;
  since_ = other.since_;
  before_ = other.before_;
  after_ = other.after_;
  (before_ == nullptr ? queue_->oldest : before_->after_) = this;
  (after_ == nullptr ? queue_->newest : after_->before_) = this;
  return *this;
}

void Admission::Ticket::Launched() {
  Queue* const queue = std::exchange(queue_, nullptr);
  if (queue == nullptr) return;
  (before_ == nullptr ? queue->oldest : before_->after_) = after_;
  (after_ == nullptr ? queue->newest : after_->before_) = before_;
  if (before_ == nullptr) {
    queue->since.store(after_ == nullptr ? 0 : after_->since_,
                       std::memory_order_relaxed);
  }
  queue->length.store(queue->length.load(std::memory_order_relaxed) - 1,
                      std::memory_order_relaxed);
}

void Admission::Ticket::Reset() {
  if (admission_ == nullptr) return;
  Launched();
  admission_->requests_.fetch_sub(1, std::memory_order_relaxed);
  admission_->bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
  admission_ = nullptr;
}

absl::StatusOr<Admission::Ticket> Admission::Admit(size_t bytes, Nanos deadline,
                                                   Nanos now) {
  if (deadline <= now) {
    Count(Refusal::kDeadlinePassed);
    return absl::DeadlineExceededError(
        "the deadline had passed before the request was admitted");
  }
  const int64_t size = static_cast<int64_t>(bytes);
  Ticket ticket;
  ticket.admission_ = this;
  ticket.bytes_ = size;
  const int64_t requests =
      requests_.fetch_add(1, std::memory_order_relaxed) + 1;
  const int64_t total =
      bytes_.fetch_add(size, std::memory_order_relaxed) + size;
  if (requests > max_requests_) {
    return Refuse(Refusal::kQueueFull, "requests", "--queue-length",
                  "QUEUE_FULL", max_requests_);
  }
  // One request alone may always run: messages have a bound of their own.
  if (total > max_bytes_ && total > size) {
    return Refuse(Refusal::kQueueBytesFull, "bytes", "--queue-bytes",
                  "QUEUE_BYTES_FULL", max_bytes_);
  }
  Queue& queue = queues_.Mine();
  ticket.queue_ = &queue;
  ticket.since_ = now;
  ticket.before_ = std::exchange(queue.newest, &ticket);
  if (ticket.before_ == nullptr) {
    queue.oldest = &ticket;
    queue.since.store(now, std::memory_order_relaxed);
  } else {
    ticket.before_->after_ = &ticket;
  }
  queue.length.store(queue.length.load(std::memory_order_relaxed) + 1,
                     std::memory_order_relaxed);
  return ticket;
}

int64_t Admission::waiting() const {
  int64_t waiting = 0;
  queues_.ForEach([&](const Queue& queue) {
    waiting += queue.length.load(std::memory_order_relaxed);
  });
  return waiting;
}

Nanos Admission::oldest_waiting() const {
  Nanos oldest = 0;
  queues_.ForEach([&](const Queue& queue) {
    const Nanos since = queue.since.load(std::memory_order_relaxed);
    if (since != 0 && (oldest == 0 || since < oldest)) oldest = since;
  });
  return oldest;
}

absl::Status Admission::Refuse(Refusal why, const char* what, const char* flag,
                               const char* reason, int64_t limit) {
  Count(why);
  return WithRetryAfter(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       "the server holds its limit of ", limit,
                                       " ", what, " in flight (", flag, ")")),
                                   reason, {{"limit", absl::StrCat(limit)}}),
                        absl::Milliseconds(20));
}

}  // namespace weir
