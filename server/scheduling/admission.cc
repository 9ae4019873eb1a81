#include "server/scheduling/admission.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

// What a request alone may hold beyond twice its message.
constexpr int64_t kAloneRoom = int64_t{1} << 20;

absl::Status Full(const char* what, const char* flags, const char* reason,
                  int64_t limit) {
  return WithRetryAfter(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       "the server holds its limit of ", limit,
                                       " ", what, " in flight (", flags, ")")),
                                   reason, {{"limit", absl::StrCat(limit)}}),
                        absl::Milliseconds(20));
}

// Not even while the server holds nothing else.
absl::Status NeverFits(int64_t bytes, int64_t limit) {
  return WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "the request takes ", bytes,
          " bytes with what is made of its "
          "message and for its reply; it may take ",
          limit,
          " (--queue-bytes, or twice its message and 1 MiB if that is more): "
          "send less, or ask for fewer or smaller outputs, in one request")),
      "QUEUE_BYTES_FULL",
      {{"bytes", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit)}});
}

}  // namespace

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  admission_ = std::exchange(other.admission_, nullptr);
  bytes_ = other.bytes_;
  message_ = other.message_;
  kind_ = other.kind_;
  queued_ = other.queued_;
  queue_ = std::exchange(other.queue_, nullptr);
  if (queue_ == nullptr) return *this;
  since_ = other.since_;
  before_ = other.before_;
  after_ = other.after_;
  (before_ == nullptr ? queue_->oldest : before_->after_) = this;
  (after_ == nullptr ? queue_->newest : after_->before_) = this;
  return *this;
}

absl::Status Admission::Ticket::Charge(size_t bytes) {
  if (admission_ == nullptr || bytes == 0) return absl::OkStatus();
  const int64_t more = static_cast<int64_t>(bytes);
  const Held held = admission_->Add(kind_, more);
  bytes_ += more;
  if (admission_->Fits(kind_, held)) return absl::OkStatus();
  const int64_t alone_limit = 2 * message_ + kAloneRoom;
  const bool alone = held.bytes <= bytes_;
  if (alone && bytes_ <= alone_limit) return absl::OkStatus();
  const int64_t wanted = std::exchange(bytes_, bytes_ - more);
  admission_->Add(kind_, -more);
  const absl::Status full = admission_->QueueBytesFull();
  const int64_t most = std::max(admission_->ByteLimit(kind_), alone_limit);
  return wanted > most ? NeverFits(wanted, most) : full;
}

void Admission::Ticket::Refund(size_t bytes) {
  if (admission_ == nullptr) return;
  const auto less = static_cast<int64_t>(bytes);
  bytes_ -= less;
  admission_->Add(kind_, -less);
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

void Admission::Ticket::Answered(size_t bytes) {
  if (admission_ == nullptr) return;
  Launched();
  if (std::exchange(queued_, false)) {
    admission_->requests_.fetch_sub(1, std::memory_order_relaxed);
  }
  const int64_t before = std::exchange(bytes_, static_cast<int64_t>(bytes));
  admission_->Add(kind_, bytes_ - before);
}

void Admission::Ticket::Reset() {
  if (admission_ == nullptr) return;
  Launched();
  if (queued_) admission_->requests_.fetch_sub(1, std::memory_order_relaxed);
  admission_->Add(kind_, -std::exchange(bytes_, 0));
  admission_ = nullptr;
}

Admission::Held Admission::Add(Kind kind, int64_t bytes) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  Held held;
  if (kind == Kind::kSmall) {
    held.of_kind = small_bytes_.fetch_add(bytes, kRelaxed) + bytes;
  }
  held.bytes = bytes_.fetch_add(bytes, kRelaxed) + bytes;
  return held;
}

absl::Status Admission::Expect(Kind kind, Nanos deadline, Nanos now) {
  if (deadline <= now) return TooLate();
  if (kind == Kind::kQueued && requests() >= max_requests_) return QueueFull();
  const int64_t small_bytes = small_bytes_.load(std::memory_order_relaxed);
  if (!Fits(kind, {bytes() + 1, small_bytes + 1})) return QueueBytesFull();
  return absl::OkStatus();
}

absl::StatusOr<Admission::Ticket> Admission::Admit(size_t bytes, Nanos deadline,
                                                   Nanos now, Kind kind) {
  if (deadline <= now) return TooLate();
  const int64_t size = static_cast<int64_t>(bytes);
  Ticket ticket;
  ticket.admission_ = this;
  ticket.bytes_ = ticket.message_ = size;
  ticket.kind_ = kind;
  ticket.queued_ = kind == Kind::kQueued;
  const Held held = Add(kind, size);
  if (ticket.queued_ &&
      requests_.fetch_add(1, std::memory_order_relaxed) >= max_requests_) {
    return QueueFull();
  }
  // One request alone may always run: messages have a bound of their own.
  if (!Fits(kind, held) && held.bytes > size) return QueueBytesFull();
  if (ticket.queued_) Enqueue(&ticket, now);
  return ticket;
}

void Admission::Enqueue(Ticket* ticket, Nanos now) {
  Queue& queue = queues_.Mine();
  ticket->queue_ = &queue;
  ticket->since_ = now;
  ticket->before_ = std::exchange(queue.newest, ticket);
  if (ticket->before_ == nullptr) {
    queue.oldest = ticket;
    queue.since.store(now, std::memory_order_relaxed);
  } else {
    ticket->before_->after_ = ticket;
  }
  queue.length.store(queue.length.load(std::memory_order_relaxed) + 1,
                     std::memory_order_relaxed);
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

absl::Status Admission::TooLate() {
  return absl::DeadlineExceededError(
      "the deadline had passed before the request was admitted");
}

absl::Status Admission::QueueFull() {
  return Full("requests", "--queue-length, plus --streams for each device",
              "QUEUE_FULL", max_requests_);
}

absl::Status Admission::QueueBytesFull() {
  return Full("bytes", "--queue-bytes", "QUEUE_BYTES_FULL", max_bytes_);
}

}  // namespace weir
