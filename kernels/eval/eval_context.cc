#include "kernels/eval/eval_context.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/atomic.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/completion.h"
#include "kernels/eval/joined_work.h"

namespace weir {
namespace {

constexpr size_t kMaxFailedKept = 1024;
// A stream takes no more unfinished works than this.
constexpr size_t kMaxLaunched = CompletionRecord::kSlots;

uint64_t NextId() {
  static Atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

std::shared_ptr<EvalContext> EvalContext::Create(
    Engine* engine, const ContextOptions& options) {
  return std::shared_ptr<EvalContext>(new EvalContext(engine, options));
}

EvalContext::EvalContext(Engine* engine, const ContextOptions& options)
    : engine_(engine),
      options_(options),
      executor_(options.executor != nullptr ? options.executor
                                            : &engine->executor()),
      id_(NextId()),
      timeline_(std::make_shared<Timeline>(
          absl::StrCat("context ", id_), nullptr,
          TimelineOwner{TimelineOwner::Kind::kContext, id_})),
      occupancy_(Occupancy::Create(id_, &engine->timers())),
      mode_(options.mode),
      rng_(options.rng) {}

EvalContext::~EvalContext() {
  std::deque<std::shared_ptr<Work>> deferred;
  {
    MutexLock lock(&mu_);
    deferred.swap(deferred_);
  }
  for (const std::shared_ptr<Work>& work : deferred) {
    EndUnplaced(*work, absl::CancelledError(absl::StrCat(
                           "context ", id_, " was closed before it ran")));
  }
}

size_t EvalContext::unfinished() const {
  MutexLock lock(&mu_);
  return unfinished_;
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

// The mode, the seed and the place in the order are resolved here and never
// change afterwards.
void EvalContext::Accept(Work* work, WorkObserver* observer) {
  work->Reset();
  work->observer_ = observer;
  work->mode_ = work->request.mode.value_or(mode_);
  work->report_.accepted_at = NowNanos();
  WorkRequest& request = work->request;
  const size_t outputs = request.program->outputs().size();
  if (request.outputs.empty()) {
    request.outputs.assign(outputs, OutputWish::kInline);
  }
  const bool reads = std::find(request.outputs.begin(), request.outputs.end(),
                               OutputWish::kInline) != request.outputs.end();
  work->return_at_ =
      reads || work->mode_ == EvalMode::kSyncFull ? WorkState::kCompleted
      : work->mode_ == EvalMode::kSyncCpu         ? WorkState::kScheduled
                                                  : WorkState::kCommitted;
  work->bytes_stay_ = work->return_at_ == WorkState::kCompleted;
  // Until it is its turn.
  for (const Point& point : request.after) work->points_.emplace_back(point);
  if (request.seed.has_value()) {
    work->seed_ = *request.seed;
  } else if (request.program->random()) {
    work->seed_ = rng_.Next();
  }
}

void EvalContext::Submit(Work* work, WorkObserver* observer) {
  const std::shared_ptr<EvalContext> self = shared_from_this();
  Accept(work, observer);
  Enqueue(work, /*was_deferred=*/false);
}

void EvalContext::EndUnplaced(Work& work, absl::Status status) {
  for (const Signal& signal : work.request.signal) {
    signal.timeline->Advance(signal.value, status).IgnoreError();
  }
  if (work.deferred_end_ != nullptr) {
    work.deferred_end_->Advance(1, status).IgnoreError();
  }
  for (InputSource& input : work.request.inputs) input.producer = nullptr;
  work.owned_inputs_.Reset();
  Refuse(work, std::move(status));
}

void EvalContext::Refuse(Work& work, absl::Status status) {
  const std::shared_ptr<Work> self = std::move(work.self_);
  work.points_.clear();
  work.SetContext(nullptr);
  work.status_ = std::move(status);
  work.Advance(WorkState::kError);
  work.Return();
  work.observer_->OnDone(work);
}

void EvalContext::Enqueue(Work* work, bool was_deferred) {
  work->SetContext(shared_from_this());
  const WorkRequest& request = work->request;
  bool needs_producer = false;
  for (const InputSource& input : request.inputs) {
    needs_producer = needs_producer || input.producer != nullptr;
  }
  if (needs_producer || !request.after.empty()) RunDeferredBefore(*work);
  bool full = false;
  {
    MutexLock lock(&mu_);
    full = !was_deferred && unfinished_ >= options_.max_pending;
    if (!full) {
      work->timeline_ = timeline_;
      work->number_ = ++last_number_;
      ++unfinished_;
      // Until it is whole: whoever pumps meanwhile leaves it alone.
      work->stage_ = Work::Stage::kPlanning;
      Append(work);
    }
  }
  if (full) {
    Refuse(*work, Full("unfinished"));
    return;
  }
  work->Advance(WorkState::kEnqueued);
  absl::Status valid = absl::OkStatus();
  if (request.inputs.size() != request.program->inputs().size()) {
    valid = InvalidField(
        "inputs",
        absl::StrCat("the program has ", request.program->inputs().size(),
                     " inputs; ", request.inputs.size(), " were given"));
  } else if (request.outputs.size() != request.program->outputs().size()) {
    valid = InvalidField(
        "outputs",
        absl::StrCat("the program has ", request.program->outputs().size(),
                     " outputs; ", request.outputs.size(), " were asked for"));
  } else if (work->cancelled_) {
    valid = absl::CancelledError("cancelled before it was enqueued");
  } else if (request.deadline <= NowNanos()) {
    valid = absl::DeadlineExceededError("the deadline has already passed");
  }
  if (!valid.ok()) {
    FinishUnlaunched(work, std::move(valid));
    return;
  }
  if (needs_producer) {
    // Shapes are known when the producers are launched: the call need not wait
    // for that.
    if (work->ReturnsBeforeLaunch() && !work->returned_) {
      absl::Status owned = work->OwnInputs(engine_->pinned());
      if (!owned.ok()) {
        FinishUnlaunched(work, std::move(owned));
        return;
      }
      work->Return();
    }
    {
      MutexLock lock(&mu_);
      work->stage_ = Work::Stage::kNeedsPlan;
      if (work->AnyCancelled()) sweep_ = true;  // skipped meanwhile
    }
    Pump();
    return;
  }
  if (absl::Status status = work->ResolveInputs(); !status.ok()) {
    FinishUnlaunched(work, std::move(status));
    return;
  }
  if (FindPlan(work)) Pump();
}

absl::Status EvalContext::Full(const char* works) const {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "context ", id_, " has ", options_.max_pending, " ", works,
                     " works, its limit")),
                 "CONTEXT_FULL"),
      absl::Milliseconds(10));
}

void EvalContext::Append(Work* work) {
  work->queue_next_ = nullptr;
  (tail_ == nullptr ? head_ : tail_->queue_next_) = work;
  tail_ = work;
}

// True if the plan was there.
bool EvalContext::FindPlan(Work* work) {
  std::shared_ptr<const class Plan> plan =
      work->request.program->FindPlan(work->host_inputs_);
  if (plan != nullptr) {
    work->report_.plan_was_cached = true;
    return Planned(work, std::move(plan));
  }
  uint64_t unwanted = 0;
  {
    // Under the lock the work stays until its wait is known: what comes of it
    // comes through the executor.
    MutexLock lock(&mu_);
    work->plan_wait_ = engine_->programs().MakePlan(
        work->request.program, work->host_inputs_, work->request.deadline,
        [self = shared_from_this(), work](ProgramCache::PlanOr made) {
          self->executor_->Post([self, work, made = std::move(made)]() mutable {
            self->PlanMade(work, std::move(made));
          });
        });
    if (work->AnyCancelled()) unwanted = std::exchange(work->plan_wait_, 0);
  }
  if (unwanted != 0) engine_->programs().Cancel(unwanted);
  return false;
}

void EvalContext::PlanMade(Work* work, ProgramCache::PlanOr plan) {
  if (!plan.ok()) {
    FinishUnlaunched(work, std::move(plan).status());
    return;
  }
  if (Planned(work, *std::move(plan))) Pump();
}

bool EvalContext::Planned(Work* work, std::shared_ptr<const class Plan> plan) {
  work->plan_ = std::move(plan);
  work->report_.planned_at = NowNanos();
  if (work->joined_ == nullptr) {
    absl::Status wanted = work->observer_->OnPlanned(*work);
    if (!wanted.ok()) {
      FinishUnlaunched(work, std::move(wanted));
      return false;
    }
  }
  if (work->ReturnsBeforeLaunch() && !work->returned_) {
    // The caller may change its bytes from now on.
    if (absl::Status staged = work->StageInputs(*engine_); !staged.ok()) {
      FinishUnlaunched(work, std::move(staged));
      return false;
    }
    work->Advance(WorkState::kCommitted);
    work->Return();
  } else {
    work->Advance(WorkState::kCommitted);
  }
  MutexLock lock(&mu_);
  work->stage_ = Work::Stage::kPlanned;
  if (work->AnyCancelled()) sweep_ = true;  // skipped while it was planned
  return true;
}

// -- The queue ----------------------------------------------------------------

void EvalContext::PostPump() {
  if (head_ == nullptr) return;
  executor_->Post([self = shared_from_this()] { self->Pump(); });
}

void EvalContext::Pump() {
  mu_.Lock();
  if (pumping_) {
    pump_again_ = true;
    mu_.Unlock();
    return;
  }
  pumping_ = true;
  while (true) {
    pump_again_ = false;
    if (sweep_) {
      sweep_ = false;
      Work* dropped = nullptr;
      for (Work* work = head_; work != nullptr; work = work->queue_next_) {
        if (work->AnyCancelled() && !work->ElsewhereNow()) {
          dropped = work;
          break;
        }
      }
      if (dropped != nullptr) {
        sweep_ = true;  // there may be more
        mu_.Unlock();
        FinishUnlaunched(
            dropped, absl::CancelledError("cancelled before it was launched"));
        mu_.Lock();
        continue;
      }
    }
    Work* const head = head_;
    if (head == nullptr || waiting_ || joined_runs_ || full_ || launching_ ||
        head->ElsewhereNow()) {
      if (pump_again_) continue;
      break;
    }
    absl::Status failed = std::move(wait_status_);
    wait_status_ = absl::OkStatus();
    mu_.Unlock();
    if (failed.ok() && head->request.deadline <= NowNanos()) {
      failed = absl::DeadlineExceededError(
          "the deadline passed before the work could be launched");
    }
    if (!failed.ok()) {
      FinishUnlaunched(head, std::move(failed));
    } else {
      RunStage(head);
    }
    mu_.Lock();
  }
  pumping_ = false;
  mu_.Unlock();
}

void EvalContext::RunStage(Work* work) {
  switch (work->stage_) {
    case Work::Stage::kNeedsPlan:
      if (absl::Status status = work->ResolveInputs(); !status.ok()) {
        FinishUnlaunched(work, std::move(status));
        return;
      }
      {
        MutexLock lock(&mu_);
        work->stage_ = Work::Stage::kPlanning;
      }
      FindPlan(work);
      return;
    case Work::Stage::kPlanned:
      WaitForPoints(work);
      return;
    case Work::Stage::kReady:
      TakeLane(work);
      return;
    case Work::Stage::kLeased:
      LaunchHead(work);
      return;
    case Work::Stage::kIdle:
    case Work::Stage::kDeferred:
    case Work::Stage::kPlanning:
    case Work::Stage::kGrowing:
    case Work::Stage::kStaging:
    case Work::Stage::kLaunched:
      return;  // not a head's stage
  }
}

uint64_t EvalContext::BeginWait() {
  MutexLock lock(&mu_);
  waiting_ = true;
  return ++ticket_;
}

bool EvalContext::EndWait(uint64_t ticket, absl::Status status) {
  if (!waiting_ || ticket != ticket_) return false;
  waiting_ = false;
  lane_wait_ = 0;
  point_wait_ = 0;
  wait_status_ = std::move(status);
  PostPump();
  return true;
}

Nanos EvalContext::WaitDeadline(const Work& work) const {
  const Nanos longest =
      NowNanos() + absl::ToInt64Nanoseconds(engine_->options().max_wait);
  return std::min(work.request.deadline, longest);
}

void EvalContext::WaitForPoints(Work* work) {
  absl::InlinedVector<Point, 4> pending;
  absl::InlinedVector<HeldPoint, 4> held;
  const auto add = [&](const Point& point) {
    if (point.is_null()) return;
    const std::optional<absl::Status> outcome = point.Outcome();
    const bool reached = outcome.has_value() && outcome->ok();
    const bool on_device = point.timeline->device() == &engine_->device() &&
                           point.timeline->launched() >= point.value;
    work->report_.waits.push_back({point.timeline->owner(),
                                   point.timeline->device(), point.value,
                                   reached     ? InsertedWait::Kind::kNone
                                   : on_device ? InsertedWait::Kind::kDevice
                                               : InsertedWait::Kind::kHost});
    if (reached) return;
    pending.push_back(point);
    held.emplace_back(point);
  };
  for (const Point& point : work->request.after) add(point);
  for (const InputSource& input : work->request.inputs) {
    if (input.tensor.valid()) add(input.tensor.storage().writer());
  }
  work->points_ = std::move(held);
  {
    MutexLock lock(&mu_);
    work->stage_ = Work::Stage::kReady;
  }
  if (pending.empty()) {
    work->report_.ready_at = NowNanos();
    return;
  }
  const uint64_t ticket = BeginWait();
  const uint64_t wait = engine_->dispatcher().WhenReady(
      pending, &engine_->device(), WaitDeadline(*work),
      [self = shared_from_this(), ticket](absl::Status status) {
        MutexLock lock(&self->mu_);
        self->EndWait(ticket, std::move(status));
      });
  MutexLock lock(&mu_);
  // The pump runs here: nobody can have dropped the work meanwhile.
  if (waiting_ && ticket == ticket_) point_wait_ = wait;
}

void EvalContext::TakeLane(Work* work) {
  if (work->report_.ready_at == 0) work->report_.ready_at = NowNanos();
  {
    MutexLock lock(&mu_);
    work->stage_ = Work::Stage::kLeased;
    if (lease_) return;
  }
  absl::StatusOr<StreamLease> lease = engine_->streams().AcquireNow();
  if (lease.ok() && *lease) {
    MutexLock lock(&mu_);
    lease_ = *std::move(lease);
    return;
  }
  const uint64_t ticket = BeginWait();
  const uint64_t wait = engine_->streams().Acquire(
      WaitDeadline(*work),
      [self = shared_from_this(), ticket](absl::StatusOr<StreamLease> lease) {
        const absl::Status status = lease.status();
        StreamLease taken = status.ok() ? *std::move(lease) : StreamLease();
        // One that comes too late goes back without the lock.
        MutexLock lock(&self->mu_);
        if (self->EndWait(ticket, status)) self->lease_ = std::move(taken);
      });
  MutexLock lock(&mu_);
  // The pump runs here: nobody can have dropped the work meanwhile.
  if (waiting_ && ticket == ticket_) lane_wait_ = wait;
}

void EvalContext::LaunchHead(Work* work) {
  Device& device = engine_->device();
  // On the CPU there is no queue of the driver's.
  const size_t launches =
      device.host_addressable() ? 0 : work->plan_->launches();
  const bool keeps_thread = !device.host_addressable() &&
                            (launches > engine_->max_lane_launches() / 2 ||
                             work->plan_->computes_on_host());
  Lane* lane = nullptr;
  {
    MutexLock lock(&mu_);
    if (!lease_) {
      // What ran on it ended meanwhile and gave it back.
      work->stage_ = Work::Stage::kReady;
      return;
    }
    const bool no_room = launches_ + launches > engine_->max_lane_launches();
    if (launched_ >= kMaxLaunched || (launched_ > 0 && no_room)) {
      full_ = true;
      return;
    }
    lane = lease_.lane();
  }
  if (!device.health().poisoned()) {
    const absl::StatusOr<bool> there = work->TakeMemoryAtHand(*engine_, *lane);
    if (!there.ok()) {
      FinishUnlaunched(work, there.status());
      return;
    }
    if (!*there) {
      GrowMemory(work, lane);
      return;
    }
  }
  if (work->StagesMuch(device.host_addressable())) {
    StageApart(work);
    return;
  }
  {
    MutexLock lock(&mu_);
    ++launched_;
    launches_ += launches;
    work->launches_ = launches;
  }
  Stream& stream = lane->stream();
  SyncReport& report = work->report_;
  report.leased_at = NowNanos();
  report.stream_id = stream.id();
  report.stream_priority = stream.priority();
  report.lane = lane->number();
  report.lease_generation = lane->generation();
  absl::Status status = device.health().status();
  if (status.ok()) status = work->AssignMemory(*engine_, *lane);
  {
    MutexLock lock(&mu_);
    Unlink(work);
    work->stage_ = Work::Stage::kLaunched;
  }
  if (!status.ok()) {
    Finish(work, std::move(status), /*launched=*/true);
    return;
  }
  if (work->joined_ != nullptr) {
    MutexLock lock(&mu_);
    joined_runs_ = true;
  }
  work->expected = work->plan_->longest_ns();
  work->expected_device_time = work->plan_->longest_device_ns();
  const int64_t measured = work->plan_->measured_ns();
  const bool run_inline =
      device.host_addressable() && measured > 0 &&
      !work->plan_->time_varies() &&
      work->return_at_ == WorkState::kCompleted &&
      measured <= absl::ToInt64Nanoseconds(engine_->options().inline_below);
  report.ran_inline = run_inline;
  if (work->joined_ == nullptr) work->observer_->OnLaunch(*work);
  if (keeps_thread) {
    LaunchApart(work, &stream);
    return;
  }
  // From here on the work may be done, and gone, at any moment.
  stream.Enqueue(work,
                 run_inline ? Stream::Inline::kIfIdle : Stream::Inline::kNever);
}

void EvalContext::LaunchApart(Work* work, Stream* stream) {
  {
    MutexLock lock(&mu_);
    launching_ = true;
  }
  // Two paces may be in the queue.
  work->pace_launches_ = engine_->max_lane_launches() / 2;
  engine_->launcher().Post([self = shared_from_this(), work, stream] {
    // The work may be done, and gone, before this returns.
    stream->Enqueue(work, Stream::Inline::kNever);
    MutexLock lock(&self->mu_);
    self->launching_ = false;
    self->PostPump();
  });
}

// Nobody else touches the work or the lane meanwhile.
void EvalContext::GrowMemory(Work* work, Lane* lane) {
  {
    MutexLock lock(&mu_);
    work->stage_ = Work::Stage::kGrowing;
  }
  engine_->allocator().Post([self = shared_from_this(), work, lane] {
    absl::Status status = work->StillWanted();
    if (status.ok()) status = work->ReserveMemory(*self->engine_, *lane);
    self->executor_->Post([self, work, status = std::move(status)]() mutable {
      self->Prepared(work, std::move(status));
    });
  });
}

void EvalContext::StageApart(Work* work) {
  {
    MutexLock lock(&mu_);
    work->stage_ = Work::Stage::kStaging;
  }
  engine_->launcher().Post([self = shared_from_this(), work] {
    absl::Status status = work->StillWanted();
    if (status.ok()) status = work->StageInputs(*self->engine_);
    self->executor_->Post([self, work, status = std::move(status)]() mutable {
      self->Prepared(work, std::move(status));
    });
  });
}

void EvalContext::Prepared(Work* work, absl::Status status) {
  if (!status.ok()) {
    // On a lost device whatever is called fails; the cause is what counts.
    absl::Status lost = engine_->device().health().status();
    FinishUnlaunched(work, std::move(lost.ok() ? status : lost));
    return;
  }
  {
    MutexLock lock(&mu_);
    work->stage_ = Work::Stage::kLeased;
    if (work->AnyCancelled()) sweep_ = true;  // skipped meanwhile
  }
  Pump();
}

void EvalContext::Unlink(Work* work) {
  Work** at = &head_;
  Work* before = nullptr;
  while (*at != work) {
    before = *at;
    at = &before->queue_next_;
  }
  *at = work->queue_next_;
  if (tail_ == work) tail_ = before;
}

void EvalContext::FinishUnlaunched(Work* work, absl::Status status) {
  uint64_t lane_wait = 0, point_wait = 0;
  {
    MutexLock lock(&mu_);
    if (work == head_) {
      waiting_ = false;
      lane_wait = std::exchange(lane_wait_, 0);
      point_wait = std::exchange(point_wait_, 0);
      ++ticket_;  // whatever it waits for comes too late
      wait_status_ = absl::OkStatus();
    }
    if (work->joined_ == nullptr) Unlink(work);
  }
  if (lane_wait != 0) engine_->streams().CancelWait(lane_wait);
  if (point_wait != 0) engine_->dispatcher().CancelWait(point_wait);
  Finish(work, std::move(status), /*launched=*/false);
  Pump();
}

StreamLease EvalContext::ReleaseLane(const Work& work, bool launched,
                                     bool failed) {
  if (launched && failed && lease_) lease_.MarkSuspect();
  if (launched) {
    --launched_;
    launches_ -= work.launches_;
  }
  if (full_ && launched_ <= kMaxLaunched / 2 &&
      launches_ <= engine_->max_lane_launches() / 2) {
    full_ = false;
    PostPump();
  }
  // Keep a lane that the next work is about to use; give back any other.
  const bool wanted = head_ != nullptr && !waiting_ &&
                      (head_->stage_ == Work::Stage::kLeased ||
                       head_->stage_ == Work::Stage::kGrowing ||
                       head_->stage_ == Work::Stage::kStaging);
  if (launched_ > 0 || wanted) return {};
  return std::move(lease_);
}

void EvalContext::Finish(Work* work, absl::Status status, bool launched) {
  if (work->joined_ != nullptr) {
    FinishJoined(work->joined_, std::move(status), launched);
    return;
  }
  const uint64_t number = work->number_;
  work->owned_inputs_.Reset();
  work->staging_.Reset();
  for (const Signal& signal : work->request.signal) {
    absl::Status moved = signal.timeline->Advance(signal.value, status);
    if (!moved.ok() && status.ok()) {
      status = Annotate(moved, "the signal after the work failed: ");
    }
  }
  for (InputSource& input : work->request.inputs) input.producer = nullptr;
  work->points_.clear();
  if (work->report_.completed_at == 0) work->report_.completed_at = NowNanos();
  // A work may be kept for its next use; what nobody reads must not stay.
  if (!status.ok() || !work->ReadsInline()) work->output_buffer_.Reset();
  work->status_ = status;

  StreamLease returned;
  {
    MutexLock lock(&mu_);
    --unfinished_;
    returned = ReleaseLane(*work, launched, !status.ok() && !GaveUp(status));
    if (!status.ok() && work->returned_) {
      if (failed_.size() >= kMaxFailedKept) failed_.pop_front();
      failed_.push_back({number, work->request.label, status});
    }
  }
  returned.Reset();
  AdvanceTimeline(number, status);
  if (work->deferred_end_ != nullptr) {
    work->deferred_end_->Advance(1, status).IgnoreError();
  }

  const std::shared_ptr<Work> self = std::move(work->self_);
  const std::shared_ptr<EvalContext> context = work->context();
  work->SetContext(nullptr);
  work->Advance(status.ok() ? WorkState::kCompleted : WorkState::kError);
  work->Return();
  work->observer_->OnDone(*work);
}

void EvalContext::AdvanceTimeline(uint64_t number, const absl::Status& status) {
  mu_.Lock();
  if (number == next_to_end_ && !advancing_ && ended_.empty()) {
    ++next_to_end_;
    advancing_ = true;
    mu_.Unlock();
    timeline_->Advance(number, status).IgnoreError();  // grows by construction
    mu_.Lock();
  } else {
    ended_.emplace(number, status);
    if (advancing_) {
      mu_.Unlock();
      return;
    }
    advancing_ = true;
  }
  while (!ended_.empty() && ended_.begin()->first == next_to_end_) {
    auto ended = ended_.extract(ended_.begin());
    ++next_to_end_;
    mu_.Unlock();
    timeline_->Advance(ended.key(), std::move(ended.mapped())).IgnoreError();
    mu_.Lock();
  }
  advancing_ = false;
  mu_.Unlock();
}

}  // namespace weir
