#include "kernels/eval/work_queue.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernels/base/holders.h"

namespace weir {

std::shared_ptr<WorkQueue> WorkQueue::Create(Executor* executor,
                                             TimerQueue* timers) {
  return std::shared_ptr<WorkQueue>(new WorkQueue(executor, timers));
}

void WorkQueue::Append(QueueItem* item) {
  MutexLock lock(&mu_);
  item->next_ = nullptr;
  item->lent_ = true;
  (tail_ == nullptr ? head_ : tail_->next_) = item;
  tail_ = item;
}

void WorkQueue::Remove(QueueItem* item) {
  MutexLock lock(&mu_);
  Unlink(item);
}

void WorkQueue::Unlink(QueueItem* item) {
  if (item == head_) NoWait();
  if (item == asked_) asked_ = nullptr;
  QueueItem** at = &head_;
  QueueItem* before = nullptr;
  while (*at != item) {
    before = *at;
    at = &before->next_;
  }
  *at = item->next_;
  if (tail_ == item) tail_ = before;
  if (head_ == nullptr) timer_.Stop();
}

void WorkQueue::Replace(QueueItem* item, absl::Span<QueueItem* const> items) {
  MutexLock lock(&mu_);
  QueueItem** at = &head_;
  while (*at != nullptr && *at != item) at = &(*at)->next_;
  QueueItem* after = head_;
  if (*at == nullptr) {
    at = &head_;
  } else {
    if (item == head_) NoWait();
    after = item->next_;
    if (item == asked_) asked_ = nullptr;
  }
  for (QueueItem* const one : items) {
    one->lent_ = true;
    *at = one;
    at = &one->next_;
  }
  *at = after;
  if (after == nullptr) tail_ = items.back();
}

void WorkQueue::NoWait() {
  parked_ = 0;
  resumed_ = absl::OkStatus();
}

void WorkQueue::Pump() {
  // What ends here may hold the context's last reference.
  const std::shared_ptr<WorkQueue> self = shared_from_this();
  MutexLock lock(&mu_);
  if (pumping_) {
    pump_again_ = true;
    return;
  }
  pumping_ = true;
  do {
    pump_again_ = false;
    while (Drive()) {
    }
  } while (pump_again_);
  pumping_ = false;
  SetTimer();
}

bool WorkQueue::Drive() {
  if (sweep_) {
    if (DropUnwanted()) return true;
    sweep_ = false;
  }
  QueueItem* const first = head_;
  if (first == nullptr || holds_ > 0 || parked_ != 0 || first->lent_) {
    return false;
  }
  absl::Status status = std::exchange(resumed_, absl::OkStatus());
  if (status.ok()) status = first->Wanted(NowNanos());
  if (!status.ok()) {
    first->lent_ = true;
    mu_.Unlock();
    first->Drop(std::move(status));
    mu_.Lock();
    return true;
  }
  asked_ = first;
  mu_.Unlock();
  // The item may be gone afterwards. Its wait may be over already.
  const QueueItem::Step step = first->Next();
  mu_.Lock();
  if (step == QueueItem::Step::kWait && asked_ != nullptr) {
    // It would be asked again for ever.
    std::fputs("an item waits for nothing\n", stderr);
    std::abort();
  }
  asked_ = nullptr;
  return step != QueueItem::Step::kBlocked;
}

bool WorkQueue::DropUnwanted() {
  const Nanos now = NowNanos();
  earliest_ = kNoDeadline;
  for (QueueItem* item = head_; item != nullptr; item = item->next_) {
    if (item->lent_) continue;
    absl::Status wanted = item->Wanted(now);
    if (wanted.ok()) {
      earliest_ = std::min(earliest_, item->deadline());
      continue;
    }
    item->lent_ = true;
    // Whatever it waits for comes too late from here on.
    if (item == head_) NoWait();
    mu_.Unlock();
    item->Drop(std::move(wanted));
    mu_.Lock();
    return true;
  }
  return false;
}

void WorkQueue::PostPump() {
  // With nothing in the queue there is nothing to drive, and there may be no
  // executor. What is in it does not end before the lock is left, so that the
  // executor is there.
  if (head_ == nullptr) return;
  if (pumping_) {
    pump_again_ = true;
    return;
  }
  executor_->Post([self = shared_from_this()] { self->Pump(); });
}

void WorkQueue::Wake() {
  MutexLock lock(&mu_);
  PostPump();
}

void WorkQueue::Sweep() {
  MutexLock lock(&mu_);
  sweep_ = true;
  PostPump();
}

uint64_t WorkQueue::Park(bool timed) {
  MutexLock lock(&mu_);
  timed_ = timed;
  asked_ = nullptr;
  if (timed) earliest_ = std::min(earliest_, head_->deadline());
  return parked_ = ++last_wait_;
}

bool WorkQueue::Resume(uint64_t wait, absl::Status status,
                       absl::FunctionRef<void()> first) {
  MutexLock lock(&mu_);
  if (parked_ != wait) return false;
  first();
  parked_ = 0;
  resumed_ = std::move(status);
  PostPump();
  return true;
}

bool WorkQueue::Take(uint64_t wait) {
  MutexLock lock(&mu_);
  if (parked_ != wait) return false;
  NoWait();
  head_->lent_ = true;
  return true;
}

void WorkQueue::Lend(QueueItem* item) {
  MutexLock lock(&mu_);
  if (item == asked_) asked_ = nullptr;
  item->lent_ = true;
}

void WorkQueue::Return(QueueItem* item) {
  {
    MutexLock lock(&mu_);
    item->lent_ = false;
    earliest_ = std::min(earliest_, item->deadline());
    if (!item->Wanted(NowNanos()).ok()) sweep_ = true;  // skipped meanwhile
  }
  Pump();
}

void WorkQueue::Hold() {
  MutexLock lock(&mu_);
  ++holds_;
}

void WorkQueue::Release() {
  MutexLock lock(&mu_);
  --holds_;
  PostPump();
}

void WorkQueue::SetTimer() {
  if (head_ == nullptr) return;
  // What waits alone is told by what it waits for, as a rule.
  const bool is_told = head_->lent_ || (parked_ != 0 && !timed_);
  if (is_told && head_ == tail_) return;
  timer_.Set(earliest_, [queue = weak_from_this()] {
    if (const std::shared_ptr<WorkQueue> self = HoldIfThere(queue)) {
      self->TimerFired();
    }
  });
}

void WorkQueue::TimerFired() {
  MutexLock lock(&mu_);
  timer_.Fired();
  sweep_ = true;
  PostPump();
}

}  // namespace weir
