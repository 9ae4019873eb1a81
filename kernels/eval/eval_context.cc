#include "kernels/eval/eval_context.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/atomic.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/joined_work.h"

namespace weir {
namespace {

uint64_t NextId() {
  static Atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

std::shared_ptr<Timeline> ContextTimeline(std::string name, uint64_t id) {
  return std::make_shared<Timeline>(
      std::move(name), nullptr,
      TimelineOwner{TimelineOwner::Kind::kContext, id});
}

}  // namespace

std::shared_ptr<EvalContext> EvalContext::Create(
    Engine* engine, const ContextOptions& options) {
  return std::shared_ptr<EvalContext>(new EvalContext(engine, options));
}

EvalContext::EvalContext(Engine* engine, const ContextOptions& options)
    : engine_(engine),
      options_(options),
      strand_(options.executor != nullptr ? nullptr
                                          : Strand::Create(&engine->threads())),
      executor_(options.executor != nullptr ? options.executor : strand_.get()),
      id_(NextId()),
      occupancy_(Occupancy::Create(id_, &engine->timers())),
      queue_(WorkQueue::Create(executor_, &engine->timers())),
      lane_(engine->max_lane_launches()),
      deferred_(DeferredSet::Create(executor_, &engine->timers(),
                                    [](Work& work, absl::Status why) {
                                      work.End(std::move(why),
                                               /*launched=*/false);
                                    })),
      order_(ContextTimeline(absl::StrCat("context ", id_), id_)),
      mode_(options.mode),
      rng_(options.rng) {}

EvalContext::~EvalContext() {
  for (const std::shared_ptr<Work>& work : deferred_->TakeAll()) {
    work->End(absl::CancelledError(
                  absl::StrCat("context ", id_, " was closed before it ran")),
              /*launched=*/false);
  }
}

// -- Occupancy ----------------------------------------------------------------

absl::StatusOr<Activation> EvalContext::Enter(HandlerId handler) {
  WEIR_RETURN_IF_ERROR(occupancy_->Enter(handler));
  return Activation(shared_from_this());
}

Occupancy::EntryId EvalContext::EnterQueued(
    HandlerId handler, Nanos deadline,
    absl::AnyInvocable<void(absl::StatusOr<Activation>)> done) {
  return occupancy_->EnterQueued(
      handler, deadline,
      [self = shared_from_this(),
       done = std::move(done)](absl::Status entered) mutable {
        if (!entered.ok()) {
          done(std::move(entered));
        } else {
          done(Activation(std::move(self)));
        }
      });
}

Activation& Activation::operator=(Activation&& other) noexcept {
  if (this != &other) {
    Leave();
    context_ = std::move(other.context_);
  }
  return *this;
}

void Activation::Leave() {
  if (context_ == nullptr) return;
  const std::shared_ptr<EvalContext> context = std::move(context_);
  context->occupancy_->Leave();
}

// -- Submission ---------------------------------------------------------------

void EvalContext::Submit(Work* work, WorkObserver* observer) {
  const std::shared_ptr<EvalContext> self = shared_from_this();
  work->Accept(mode_, observer);
  Enqueue(work);
}

void EvalContext::Enqueue(Work* work) {
  work->SetContext(shared_from_this());
  AllPlaced before;
  uint64_t number = 0;
  {
    MutexLock lock(&placing_);
    before = PlaceDeferred(deferred_->TakeBefore(*work, *this));
    number = order_.Take(1, options_.max_pending);
    if (number != 0) {
      DrawSeed(*work);
      work->Place(order_.timeline(), number);
      queue_->Append(work);
    }
  }
  Begin(before);
  if (number == 0) {
    work->Refuse(Full("unfinished", options_.max_pending));
    return;
  }
  work->Start();
}

void EvalContext::DrawSeed(Work& work) {
  if (work.request.seed.has_value()) {
    work.SetSeed(*work.request.seed);
  } else if (work.request.program->random()) {
    MutexLock lock(&mu_);
    const RngState drawn = rng_;
    work.SetDrawnSeed(rng_.Next(), drawn);
  }
}

RngState EvalContext::rng() const {
  MutexLock lock(&mu_);
  return rng_;
}

void EvalContext::SetRng(const RngState& rng) {
  MutexLock lock(&mu_);
  rng_ = rng;
}

absl::Status EvalContext::Full(const char* works, size_t limit) const {
  return WithRetryAfter(WithReason(absl::ResourceExhaustedError(absl::StrCat(
                                       "context ", id_, " has ", limit, " ",
                                       works, " works, its limit")),
                                   "CONTEXT_FULL"),
                        absl::Milliseconds(10));
}

void EvalContext::LeaveLane(size_t launches, bool suspect) {
  if (lane_.End(launches, suspect)) queue_->Wake();
}

void EvalContext::EndPlaced(const Work& work) {
  if (!work.status().ok() && work.returned_) {
    MutexLock lock(&mu_);
    ++failed_total_;
    if (failed_.size() >= FlushResult::kMaxFailedKept) failed_.pop_front();
    failed_.push_back({.number = work.number(),
                       .tag = work.request.tag,
                       .label = work.request.label,
                       .status = work.status()});
  }
  order_.End(work.number(), work.status());
}

// -- Deferred works -----------------------------------------------------------

void EvalContext::Defer(std::shared_ptr<Work> work, WorkObserver* observer) {
  const std::shared_ptr<EvalContext> self = shared_from_this();
  Work* const raw = work.get();
  raw->Accept(mode_, observer);
  // Reading an inline output is a use: such a work is run at once, and returns
  // when it is done.
  if (raw->mode() != EvalMode::kDeferred ||
      raw->return_at_ == WorkState::kCompleted) {
    raw->KeepSelf(std::move(work));
    Enqueue(raw);
    return;
  }
  absl::Status accepted;
  {
    MutexLock lock(&placing_);
    accepted = HasRoomForDeferred();
  }
  if (accepted.ok()) accepted = raw->memory_.OwnInputs(engine_->pinned());
  if (!accepted.ok()) {
    raw->Refuse(std::move(accepted));
    return;
  }
  {
    MutexLock lock(&placing_);
    DrawSeed(*raw);
  }
  raw->Defer(
      ContextTimeline(absl::StrCat("a deferred work of context ", id_), id_),
      deferred_);
  const Point end = raw->point();
  const auto signal = raw->request.signal;
  const uint64_t number = deferred_->Add(std::move(work));
  RunOnceWanted(end, number);
  for (const Signal& each : signal) {
    RunOnceWanted({each.timeline, each.value}, number);
  }
}

absl::Status EvalContext::HasRoomForDeferred() {
  if (deferred_->size() >= options_.max_pending) {
    return Full("deferred", options_.max_pending);
  }
  // What is accepted is run: it needs room among the unfinished ones as well.
  if (unfinished() + deferred_->size() >= 2 * options_.max_pending) {
    return Full("unfinished or deferred", 2 * options_.max_pending);
  }
  return absl::OkStatus();
}

void EvalContext::RunOnceWanted(const Point& point, uint64_t number) {
  // Whoever waits may hold locks: it ends no context, and runs nothing.
  point.timeline->OnWanted(
      point.value, [set = std::weak_ptr<DeferredSet>(deferred_),
                    context = weak_from_this(), number] {
        const std::shared_ptr<DeferredSet> deferred = HoldIfThere(set);
        if (deferred == nullptr) return;
        deferred->Want(number, [context] {
          if (const auto self = HoldIfThere(context)) self->RunWanted();
        });
      });
}

void EvalContext::RunWanted() {
  AllPlaced placed;
  {
    MutexLock lock(&placing_);
    placed = PlaceDeferred(deferred_->TakeWanted());
  }
  Begin(placed);
}

EvalContext::AllPlaced EvalContext::PlaceDeferred(DeferredSet::Works works) {
  AllPlaced placed;
  for (size_t i = 0; i < works.size();) {
    const size_t count =
        JoinedWork::CountJoinable(absl::MakeSpan(works).subspan(i), *this);
    const auto first = works.begin() + static_cast<ptrdiff_t>(i);
    const auto end = first + static_cast<ptrdiff_t>(count);
    i += count;
    if (count > 1) {
      auto joined = std::make_unique<JoinedWork>(JoinedWork::Members(
          std::make_move_iterator(first), std::make_move_iterator(end)));
      if (joined->makes_results()) {
        placed.push_back({.joined = PlaceJoined(std::move(joined))});
        continue;
      }
      std::copy(joined->members().begin(), joined->members().end(), first);
    }
    for (auto it = first; it != end; ++it) {
      Work* const work = it->get();
      work->KeepSelf(std::move(*it));
      work->SetContext(shared_from_this());
      work->Place(order_.timeline(), order_.Take(1, SIZE_MAX));
      queue_->Append(work);
      placed.push_back({.work = work});
    }
  }
  return placed;
}

void EvalContext::Begin(const AllPlaced& placed) {
  for (const Placed& each : placed) {
    if (each.joined != nullptr) {
      BeginJoined(each.joined);
    } else {
      each.work->Start();
    }
  }
}

FlushResult EvalContext::Flush() {
  FlushResult result;
  uint64_t flushed = 0;
  {
    MutexLock lock(&placing_);
    flushed = flushed_;
  }
  const auto name = [flushed](const Work& work, uint64_t number) {
    return FlushedWork{.tag = work.request.tag,
                       .label = work.request.label,
                       .position = DeferredSet::Number(work) - flushed,
                       .number = number};
  };
  // From the last to the first: giving up what nobody reads may set its
  // producers free as well.
  uint64_t number = UINT64_MAX;
  while (const auto unread = deferred_->TakeUnread(number)) {
    number = DeferredSet::Number(*unread);
    result.dropped.push_back(name(*unread, 0));
    unread->End(absl::CancelledError("nobody waits for it"),
                /*launched=*/false);
  }
  std::reverse(result.dropped.begin(), result.dropped.end());
  {
    MutexLock lock(&mu_);
    result.failed.assign(std::make_move_iterator(failed_.begin()),
                         std::make_move_iterator(failed_.end()));
    failed_.clear();
    result.failed_total = std::exchange(failed_total_, 0);
  }
  // Works of one joined work end in any order.
  std::sort(result.failed.begin(), result.failed.end(),
            [](const FailedWork& a, const FailedWork& b) {
              return a.number < b.number;
            });
  // What its executor has not come to yet.
  deferred_->GiveUpUnwanted();
  AllPlaced placed;
  {
    MutexLock lock(&placing_);
    flushed_ = deferred_->added();
    DeferredSet::Works deferred = deferred_->TakeAll();
    number = order_.last();
    for (const std::shared_ptr<Work>& work : deferred) {
      result.executed.push_back(name(*work, ++number));
    }
    placed = PlaceDeferred(std::move(deferred));
  }
  Begin(placed);
  return result;
}

// -- Works that run as one ----------------------------------------------------

JoinedWork* EvalContext::PlaceJoined(std::unique_ptr<JoinedWork> owned) {
  JoinedWork* const joined = owned.release();  // EndJoined takes it back
  Work& work = joined->work();
  uint64_t number = order_.Take(joined->members().size(), SIZE_MAX);
  for (const std::shared_ptr<Work>& member : joined->members()) {
    member->Place(order_.timeline(), number++);
    member->SetContext(shared_from_this());
  }
  work.BeginJoined(number - 1);
  work.SetContext(shared_from_this());
  queue_->Append(&work);
  MutexLock lock(&mu_);
  joined_.push_back(joined);
  return joined;
}

void EvalContext::BeginJoined(JoinedWork* joined) {
  Work& work = joined->work();
  for (const std::shared_ptr<Work>& member : joined->members()) {
    member->Advance(WorkState::kEnqueued);
  }
  ProgramCache& programs = engine_->programs();
  work.AwaitCache(programs, [&] {
    return programs.GetOrCompile(
        joined->ProgramKey(), joined->Factory(), work.request.deadline,
        [self = shared_from_this(), joined](ProgramCache::ProgramOr program) {
          self->executor_->Post([self, joined, program = std::move(program)] {
            self->JoinedCompiled(joined, program);
          });
        },
        std::string(work.request.owner));
  });
}

void EvalContext::CallOffJoined() {
  std::vector<uint64_t> waits;
  {
    MutexLock lock(&mu_);
    for (JoinedWork* const joined : joined_) {
      if (!joined->AnyCancelled()) continue;
      const uint64_t wait = joined->work().TakeCacheWait();
      if (wait != 0) waits.push_back(wait);
    }
  }
  for (const uint64_t wait : waits) engine_->programs().Cancel(wait);
}

void EvalContext::JoinedCompiled(JoinedWork* joined,
                                 ProgramCache::ProgramOr program) {
  Work& work = joined->work();
  work.TakeCacheWait();
  if (!program.ok()) {
    work.EndUnlaunched(program.status());
    return;
  }
  work.request.program = *std::move(program);
  work.stage_ = Work::Stage::kNeedsPlan;
  queue_->Return(&work);
}

void EvalContext::EndJoined(JoinedWork* joined, absl::Status status,
                            bool launched) {
  const std::shared_ptr<WorkQueue> queue = queue_;
  std::unique_ptr<JoinedWork> owned(joined);
  {
    MutexLock lock(&mu_);
    std::erase(joined_, joined);
  }
  std::vector<QueueItem*> items;  // the members, if they run one by one
  Work& work = joined->work();
  // A wait for a lane that took too long would take as long for each member;
  // and with a lost device there is nothing to run them on.
  const bool lost = engine_->device().health().poisoned();
  if (lost && !status.ok()) status = engine_->device().health().status();
  const bool late = absl::IsDeadlineExceeded(status) && !IsInherited(status) &&
                    work.stage_ != Work::Stage::kPlanning &&
                    joined->AllWanted();
  if (status.ok() || late || lost) {
    if (!launched) queue->Remove(&work);
    joined->HandOut(status.ok());
    // From the last OnDone on there may be no engine: nothing of it is left
    // here by then.
    std::vector<Work*> works;
    JoinedWork::Members members = joined->TakeMembers();
    for (std::shared_ptr<Work>& member : members) {
      works.push_back(member.get());
      works.back()->KeepSelf(std::move(member));
    }
    owned = nullptr;
    for (Work* const member : works) member->End(status, /*launched=*/false);
  } else {
    for (const std::shared_ptr<Work>& member : joined->members()) {
      member->KeepSelf(member);
      member->stage_ = Work::Stage::kNeedsPlan;
      items.push_back(member.get());
    }
    queue->Replace(&work, items);
    owned = nullptr;
  }
  // What it held back may read its members from here on.
  if (launched) queue->Release();
  if (items.empty()) return;
  const auto give_back = [queue, items = std::move(items)] {
    for (QueueItem* const item : items) queue->Return(item);
  };
  if (launched) {
    executor_->Post(give_back);  // this thread completes works
  } else {
    give_back();
  }
}

}  // namespace weir
