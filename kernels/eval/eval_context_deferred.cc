// The deferred side of EvalContext: what waits for Flush or for its first use,
// and works that run as one.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/joined_work.h"

namespace weir {
namespace {

// Whether `work` reads what the deferred one makes, or comes after it.
bool ComesAfter(const Work& work, const std::shared_ptr<Work>& deferred) {
  const WorkRequest& request = work.request;
  const Point end = deferred->point();
  return absl::c_any_of(
             request.inputs,
             [&](const InputSource& in) { return in.producer == deferred; }) ||
         absl::c_any_of(request.after, [&](const Point& point) {
           return point == end ||
                  absl::c_any_of(deferred->request.signal,
                                 [&](const Signal& signal) {
                                   return point.timeline == signal.timeline &&
                                          point.value <= signal.value;
                                 });
         });
}

}  // namespace

void EvalContext::Defer(std::shared_ptr<Work> work, WorkObserver* observer) {
  const std::shared_ptr<EvalContext> self = shared_from_this();
  Accept(work.get(), observer);
  if (work->mode_ != EvalMode::kDeferred) {
    work->self_ = work;
    Enqueue(work.get(), /*was_deferred=*/false);
    return;
  }
  work->stage_ = Work::Stage::kDeferred;
  // Reading an inline output is a use: such a work is run at once, and returns
  // when it is done.
  if (work->return_at_ == WorkState::kCompleted) {
    work->self_ = work;
    Enqueue(work.get(), /*was_deferred=*/false);
    return;
  }
  absl::Status accepted;
  {
    // What is accepted is run: it needs room among the unfinished ones as well.
    MutexLock lock(&mu_);
    const size_t deferred = deferred_.size();
    if (deferred >= options_.max_pending ||
        unfinished_ + deferred >= 2 * options_.max_pending) {
      accepted = Full("unfinished or deferred");
    }
  }
  if (accepted.ok()) accepted = work->OwnInputs(engine_->pinned());
  if (!accepted.ok()) {
    Refuse(*work, std::move(accepted));
    return;
  }
  work->returned_ = true;
  work->deferred_end_ = std::make_shared<Timeline>(
      absl::StrCat("a deferred work of context ", id_), nullptr,
      TimelineOwner{TimelineOwner::Kind::kContext, id_});
  Work* const raw = work.get();
  {
    // Only this handler fills it.
    MutexLock lock(&mu_);
    deferred_.push_back(std::move(work));
  }
  observer->OnReturn(*raw);
}

// Deferred works that `work` depends on run first, and what those depend on,
// and so on: everything deferred before the last of them, so that order is
// kept.
void EvalContext::RunDeferredBefore(const Work& work) {
  std::vector<std::shared_ptr<Work>> works;
  {
    MutexLock lock(&mu_);
    size_t count = 0;
    for (size_t i = 0; i < deferred_.size(); ++i) {
      if (ComesAfter(work, deferred_[i])) count = i + 1;
    }
    const auto end = deferred_.begin() + static_cast<ptrdiff_t>(count);
    works.assign(std::make_move_iterator(deferred_.begin()),
                 std::make_move_iterator(end));
    deferred_.erase(deferred_.begin(), end);
  }
  RunDeferred(std::move(works));
}

void EvalContext::RunDeferred(std::vector<std::shared_ptr<Work>> works) {
  for (size_t i = 0; i < works.size();) {
    const size_t count =
        JoinedWork::CountJoinable(absl::MakeSpan(works).subspan(i));
    const auto first = works.begin() + static_cast<ptrdiff_t>(i);
    const auto end = first + static_cast<ptrdiff_t>(count);
    i += count;
    if (count > 1) {
      auto joined = std::make_unique<JoinedWork>(JoinedWork::Members(
          std::make_move_iterator(first), std::make_move_iterator(end)));
      if (joined->makes_results()) {
        EnqueueJoined(std::move(joined));
        continue;
      }
      std::copy(joined->members().begin(), joined->members().end(), first);
    }
    for (auto it = first; it != end; ++it) {
      Work* const work = it->get();
      work->self_ = std::move(*it);
      Enqueue(work, /*was_deferred=*/true);
    }
  }
}

FlushResult EvalContext::Flush() {
  FlushResult result;
  std::deque<std::shared_ptr<Work>> deferred;
  {
    MutexLock lock(&mu_);
    deferred.swap(deferred_);
  }
  // From the last to the first: giving up what nobody reads may set its
  // producers free as well.
  for (size_t i = deferred.size(); i-- > 0;) {
    if (!deferred[i]->IsUnread(deferred[i])) continue;
    result.dropped.push_back(i + 1);
    EndUnplaced(*deferred[i], absl::CancelledError("nobody waits for it"));
    deferred[i] = nullptr;
  }
  std::reverse(result.dropped.begin(), result.dropped.end());
  std::vector<std::shared_ptr<Work>> works;
  for (std::shared_ptr<Work>& work : deferred) {
    if (work != nullptr) works.push_back(std::move(work));
  }
  // Numbers follow the order; nobody else submits meanwhile.
  uint64_t last = 0;
  {
    MutexLock lock(&mu_);
    last = last_number_;
  }
  for (size_t i = 0; i < works.size(); ++i) {
    result.executed.push_back(last + 1 + i);
  }
  RunDeferred(std::move(works));
  MutexLock lock(&mu_);
  result.failed.assign(std::make_move_iterator(failed_.begin()),
                       std::make_move_iterator(failed_.end()));
  failed_.clear();
  return result;
}

void EvalContext::EnqueueJoined(std::unique_ptr<JoinedWork> owned) {
  JoinedWork* const joined = owned.release();  // FinishJoined takes it back
  Work& work = joined->work();
  const JoinedWork::Members& members = joined->members();
  {
    MutexLock lock(&mu_);
    unfinished_ += members.size();
    for (const std::shared_ptr<Work>& member : members) {
      member->timeline_ = timeline_;
      member->number_ = ++last_number_;
      member->SetContext(shared_from_this());
    }
    work.Reset();
    work.number_ = last_number_;
    work.mode_ = EvalMode::kDeferred;
    work.SetContext(shared_from_this());
    work.returned_ = true;  // nobody is told
    work.bytes_stay_ = true;
    work.stage_ = Work::Stage::kPlanning;
    Append(&work);
  }
  for (const std::shared_ptr<Work>& member : members) {
    member->Advance(WorkState::kEnqueued);
  }
  engine_->programs().GetOrCompile(
      joined->ProgramKey(), joined->Factory(), work.request.deadline,
      [self = shared_from_this(), joined](ProgramCache::ProgramOr program) {
        self->executor_->Post([self, joined, program = std::move(program)] {
          self->JoinedCompiled(joined, program);
        });
      });
}

void EvalContext::JoinedCompiled(JoinedWork* joined,
                                 ProgramCache::ProgramOr program) {
  Work& work = joined->work();
  if (!program.ok()) {
    FinishUnlaunched(&work, program.status());
    return;
  }
  work.request.program = *std::move(program);
  {
    MutexLock lock(&mu_);
    work.stage_ = Work::Stage::kNeedsPlan;
    if (joined->AnyCancelled()) sweep_ = true;  // skipped while it was compiled
  }
  Pump();
}

// Its members have its deadline, and with a lost device there is nothing to run
// them on.
void EvalContext::FinishJoined(JoinedWork* joined, absl::Status status,
                               bool launched) {
  const std::shared_ptr<EvalContext> self = shared_from_this();
  const std::unique_ptr<JoinedWork> owned(joined);
  const bool late = absl::IsDeadlineExceeded(status) &&
                    joined->work().request.deadline <= NowNanos();
  const bool done =
      status.ok() || late || engine_->device().health().poisoned();
  StreamLease returned;
  {
    MutexLock lock(&mu_);
    returned =
        ReleaseLane(joined->work(), launched, !status.ok() && !GaveUp(status));
    if (!done) {
      Split(*joined);
    } else if (!launched) {
      Unlink(&joined->work());
    }
  }
  returned.Reset();
  if (done) {
    joined->HandOut(status.ok());
    for (const std::shared_ptr<Work>& member : joined->members()) {
      Finish(member.get(), status, /*launched=*/false);
    }
  }
  MutexLock lock(&mu_);
  // Of the one that runs: what it holds back may read its members from here on.
  if (launched) joined_runs_ = false;
  PostPump();
}

void EvalContext::Split(JoinedWork& joined) {
  Work** at = &head_;
  while (*at != nullptr && *at != &joined.work()) at = &(*at)->queue_next_;
  Work* after = nullptr;
  if (*at == nullptr) {
    at = &head_;
    after = head_;
  } else {
    after = (*at)->queue_next_;
  }
  for (const std::shared_ptr<Work>& member : joined.members()) {
    member->self_ = member;
    member->stage_ = Work::Stage::kNeedsPlan;
    *at = member.get();
    at = &member->queue_next_;
  }
  *at = after;
  if (after == nullptr) tail_ = joined.members().back().get();
  sweep_ = true;  // cancelled members go by themselves
}

}  // namespace weir
