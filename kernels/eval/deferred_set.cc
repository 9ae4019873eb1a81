#include "kernels/eval/deferred_set.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "kernels/base/holders.h"
#include "kernels/eval/eval_context.h"

namespace weir {
namespace {

// Whether it is up to `work` that `point` is reached.
bool Reaches(const Work& work, const Point& point) {
  return (!point.is_null() && point == work.point()) ||
         absl::c_any_of(work.request.signal, [&](const Signal& signal) {
           return point.timeline == signal.timeline &&
                  point.value <= signal.value;
         });
}

bool WaitsFor(const Work& work, const Work& other) {
  return absl::c_any_of(work.request.after, [&](const Point& point) {
    return Reaches(other, point);
  });
}

// Whether `work` reads what the deferred one makes, or comes after it.
bool ComesAfter(const Work& work, const std::shared_ptr<Work>& deferred) {
  return WaitsFor(work, *deferred) ||
         absl::c_any_of(work.request.inputs, [&](const InputSource& in) {
           return in.producer == deferred;
         });
}

}  // namespace

bool DeferredSet::MayWaitElsewhere(const Work& work, const EvalContext& here,
                                   const Line& deferred) {
  const auto is_ours = [&](const Point& point) {
    return point.timeline == here.timeline() ||
           absl::c_any_of(deferred, [&](const std::shared_ptr<Work>& one) {
             return Reaches(*one, point);
           });
  };
  return absl::c_any_of(work.request.after,
                        [&](const Point& point) {
                          return !point.Outcome().has_value() &&
                                 !is_ours(point);
                        }) ||
         absl::c_any_of(work.request.inputs, [&](const InputSource& in) {
           return in.producer != nullptr && !in.producer->readable_ &&
                  !in.producer->done() && !in.producer->IsOf(here) &&
                  !absl::c_linear_search(deferred, in.producer);
         });
}

std::shared_ptr<DeferredSet> DeferredSet::Create(Executor* executor,
                                                 TimerQueue* timers,
                                                 GiveUp give_up) {
  return std::shared_ptr<DeferredSet>(
      new DeferredSet(executor, timers, std::move(give_up)));
}

size_t DeferredSet::size() const {
  MutexLock lock(&mu_);
  return works_.size();
}

uint64_t DeferredSet::added() const {
  MutexLock lock(&mu_);
  return added_;
}

uint64_t DeferredSet::Add(std::shared_ptr<Work> work) {
  MutexLock lock(&mu_);
  // It may have been cancelled before it was known to be here.
  const bool wanted = work->Wanted(NowNanos()).ok();
  const Nanos deadline = work->request.deadline;
  work->deferred_number_ = ++added_;
  work->awaited_ = false;
  works_.push_back(std::move(work));
  if (wanted) {
    SetTimer(deadline);
  } else {
    PostGiveUp();
  }
  return added_;
}

uint64_t DeferredSet::Number(const Work& work) { return work.deferred_number_; }

DeferredSet::Works DeferredSet::TakeBefore(const Work& work,
                                           const EvalContext& here) {
  MutexLock lock(&mu_);
  size_t count = 0;
  for (size_t i = 0; i < works_.size(); ++i) {
    if (ComesAfter(work, works_[i])) count = i + 1;
  }
  if (count < works_.size() && MayWaitElsewhere(work, here, works_)) {
    while (count < works_.size() && !WaitsFor(*works_[count], work)) ++count;
  }
  return Take(count);
}

DeferredSet::Works DeferredSet::TakeAll() {
  MutexLock lock(&mu_);
  return Take(works_.size());
}

DeferredSet::Line::iterator DeferredSet::From(uint64_t number) {
  return std::lower_bound(works_.begin(), works_.end(), number,
                          [](const std::shared_ptr<Work>& work, uint64_t from) {
                            return Number(*work) < from;
                          });
}

std::shared_ptr<Work> DeferredSet::TakeUnread(uint64_t below) {
  MutexLock lock(&mu_);
  for (auto at = From(below); at != works_.begin();) {
    --at;
    if ((*at)->awaited_ || !(*at)->IsUnread(*at)) continue;
    std::shared_ptr<Work> unread = std::move(*at);
    works_.erase(at);
    WereTaken();
    return unread;
  }
  return nullptr;
}

void DeferredSet::Want(uint64_t number, Executor::Task run) {
  MutexLock lock(&mu_);
  const auto awaited = From(number);
  if (awaited == works_.end() || Number(**awaited) != number) return;
  (*awaited)->awaited_ = true;
  if (number <= wanted_) return;
  // What the executor was given for lesser ones takes this one, too.
  const bool posted = !works_.empty() && Number(*works_.front()) <= wanted_;
  wanted_ = number;
  if (!posted) executor_->Post(std::move(run));
}

DeferredSet::Works DeferredSet::TakeWanted() {
  MutexLock lock(&mu_);
  return Take(static_cast<size_t>(From(wanted_ + 1) - works_.begin()));
}

DeferredSet::Works DeferredSet::Take(size_t count) {
  const auto end = works_.begin() + static_cast<ptrdiff_t>(count);
  Works taken(std::make_move_iterator(works_.begin()),
              std::make_move_iterator(end));
  works_.erase(works_.begin(), end);
  WereTaken();
  return taken;
}

void DeferredSet::WereTaken() {
  if (!works_.empty()) return;
  timer_.Stop();
  posted_ = false;  // from here on that may be dropped
}

void DeferredSet::Sweep() {
  MutexLock lock(&mu_);
  PostGiveUp();
}

void DeferredSet::PostGiveUp() {
  // What is here does not end before the lock is left: there is an executor.
  if (works_.empty() || posted_) return;
  posted_ = true;
  executor_->Post([self = shared_from_this()] { self->GiveUpUnwanted(); });
}

void DeferredSet::GiveUpUnwanted() {
  Works unwanted;
  {
    MutexLock lock(&mu_);
    posted_ = false;
    const Nanos now = NowNanos();
    Nanos earliest = kNoDeadline;
    for (std::shared_ptr<Work>& work : works_) {
      if (work->Wanted(now).ok()) {
        earliest = std::min(earliest, work->request.deadline);
      } else {
        unwanted.push_back(std::move(work));
      }
    }
    std::erase(works_, nullptr);
    if (works_.empty()) timer_.Stop();
    SetTimer(earliest);
  }
  for (const std::shared_ptr<Work>& work : unwanted) {
    give_up_(*work, work->Wanted(NowNanos()));
  }
}

void DeferredSet::SetTimer(Nanos at) {
  timer_.Set(at, [set = weak_from_this()] {
    if (const std::shared_ptr<DeferredSet> self = HoldIfThere(set)) {
      self->TimerFired();
    }
  });
}

void DeferredSet::TimerFired() {
  MutexLock lock(&mu_);
  timer_.Fired();
  PostGiveUp();
}

}  // namespace weir
