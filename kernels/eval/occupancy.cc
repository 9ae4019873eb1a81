#include "kernels/eval/occupancy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/atomic.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

constexpr size_t kMaxQueued = 1024;

}  // namespace

HandlerId NewHandlerId() {
  static Atomic<HandlerId> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<Occupancy> Occupancy::Create(uint64_t context,
                                             TimerQueue* timers) {
  return std::shared_ptr<Occupancy>(new Occupancy(context, timers));
}

Occupancy::Occupancy(uint64_t context, TimerQueue* timers)
    : context_(context), timers_(timers) {}

absl::Status Occupancy::Busy(HandlerId owner) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  return WithReason(
      absl::AbortedError(absl::StrCat("context ", context_,
                                      " is active in handler ", owner,
                                      "; use a context per handler, or ask "
                                      "to be queued")),
      "CONTEXT_BUSY",
      {{"context", absl::StrCat(context_)}, {"owner", absl::StrCat(owner)}});
}

absl::Status Occupancy::QueueFull() {
  refused_.fetch_add(1, std::memory_order_relaxed);
  return WithRetryAfter(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       "context ", context_, " has ",
                                       kMaxQueued, " handlers queued already")),
                                   "CONTEXT_QUEUE_FULL"),
                        absl::Milliseconds(100));
}

bool Occupancy::TryEnter(HandlerId& handler) {
  HandlerId owner = 0;
  if (owner_.compare_exchange_strong(owner, handler,
                                     std::memory_order_acq_rel)) {
    return true;
  }
  handler = owner;
  return false;
}

bool Occupancy::TryEnterAgain(HandlerId handler) {
  if (owner_.load(std::memory_order_acquire) != handler) return false;
  ++again_;
  return true;
}

absl::Status Occupancy::Enter(HandlerId handler) {
  for (;;) {
    HandlerId owner = handler;
    if (TryEnter(owner)) return absl::OkStatus();
    if (owner != handler) return Busy(owner);
    MutexLock lock(&mu_);
    if (TryEnterAgain(handler)) return absl::OkStatus();
    // It has just left.
  }
}

Occupancy::EntryId Occupancy::EnterQueued(HandlerId handler, Nanos deadline,
                                          Entered done) {
  absl::Status now;
  {
    // Leave looks at the queue under the same lock, so that nobody is
    // forgotten in it.
    MutexLock lock(&mu_);
    HandlerId owner = handler;
    if (!TryEnter(owner) && !TryEnterAgain(handler)) {
      if (queue_.size() < kMaxQueued) {
        const EntryId id = ++last_entry_;
        queue_.push_back({id, handler, std::move(done), 0});
        queue_.back().timer = timers_->Add(deadline, [self = shared_from_this(),
                                                      id] {
          Entrant late = self->Take(id);
          if (late.id == 0) return;
          late.done(absl::DeadlineExceededError(absl::StrCat(
              "context ", self->context_, " stayed busy past the deadline")));
        });
        return id;
      }
      now = QueueFull();
    }
  }
  done(std::move(now));
  return 0;
}

Occupancy::Entrant Occupancy::Take(EntryId entry) {
  MutexLock lock(&mu_);
  const auto found =
      std::find_if(queue_.begin(), queue_.end(),
                   [&](const Entrant& e) { return e.id == entry; });
  if (found == queue_.end()) return {};
  Entrant taken = std::move(*found);
  queue_.erase(found);
  return taken;
}

bool Occupancy::CancelEntry(EntryId entry) {
  const Entrant taken = Take(entry);
  if (taken.id == 0) return false;
  timers_->Cancel(taken.timer);
  return true;
}

void Occupancy::Leave() {
  Entrant next;
  {
    MutexLock lock(&mu_);
    if (again_ > 0) {
      --again_;
      return;
    }
    if (queue_.empty()) {
      owner_.store(0, std::memory_order_release);
      return;
    }
    next = std::move(queue_.front());
    queue_.pop_front();
    owner_.store(next.handler, std::memory_order_release);
  }
  timers_->Cancel(next.timer);
  next.done(absl::OkStatus());
}

}  // namespace weir
