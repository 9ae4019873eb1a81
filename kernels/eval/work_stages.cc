// The stages of a work in its context's queue, up to its launch.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/joined_work.h"
#include "kernels/eval/work.h"

namespace weir {
namespace {

// `what`, "the program" for example, is of `device`, and the work runs on
// another one.
absl::Status WrongDevice(std::string_view what, const Device& device,
                         const Device& here) {
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          AbslView(what), " is of ", DeviceName(device.info()),
          " and the evaluation runs on ", DeviceName(here.info()))),
      "WRONG_DEVICE");
}

}  // namespace

void Work::Start() {
  Advance(WorkState::kEnqueued);
  absl::Status valid = absl::OkStatus();
  const std::shared_ptr<EvalContext> context = this->context();
  const Program& program = *request.program;
  const Device& device = context->engine().device();
  if (&program.device() != &device) {
    valid = WrongDevice("the program", program.device(), device);
  } else if (request.inputs.size() != program.inputs().size()) {
    valid = InvalidField(
        "inputs",
        absl::StrCat("the program has ", program.inputs().size(), " inputs; ",
                     request.inputs.size(), " were given"));
  } else if (request.outputs.size() != program.outputs().size()) {
    valid = InvalidField(
        "outputs",
        absl::StrCat("the program has ", program.outputs().size(), " outputs; ",
                     request.outputs.size(), " were asked for"));
  } else {
    valid = Wanted(NowNanos());
  }
  if (!valid.ok()) {
    EndUnlaunched(std::move(valid));
    return;
  }
  const bool reads_works =
      std::any_of(request.inputs.begin(), request.inputs.end(),
                  [](const InputSource& in) { return in.producer != nullptr; });
  if (reads_works) {
    // Shapes are known when the producers are launched: the call need not wait
    // for that.
    if (ReturnsBeforeLaunch() && !returned_) {
      absl::Status owned = memory_.OwnInputs(context->engine().pinned());
      if (!owned.ok()) {
        EndUnlaunched(std::move(owned));
        return;
      }
      Return();
    }
    stage_ = Stage::kNeedsPlan;
    context->queue_->Return(this);
    return;
  }
  if (absl::Status status = ResolveInputs(); !status.ok()) {
    EndUnlaunched(std::move(status));
    return;
  }
  if (FindPlan()) context->queue_->Return(this);
}

absl::Status Work::Wanted(Nanos now) const {
  WEIR_RETURN_IF_ERROR(WantedBefore("it was launched", now));
  if (longest_in_line_ > now) return absl::OkStatus();
  return WithRetryAfter(
      WithReason(absl::DeadlineExceededError(
                     "it stood in line for memory, or for the copy of its "
                     "inputs, for longer than any work may; try again later"),
                 "MEMORY_WAIT_TOO_LONG"),
      absl::Seconds(1));
}

void Work::Drop(absl::Status status) { EndUnlaunched(std::move(status)); }

void Work::CallOff() {
  const std::shared_ptr<EvalContext> context = this->context();
  if (const uint64_t wait = std::exchange(point_wait_, 0); wait != 0) {
    context->engine().dispatcher().CancelWait(wait);
  }
  if (const uint64_t wait = std::exchange(lane_wait_, 0); wait != 0) {
    context->engine().streams().CancelWait(wait);
  }
  if (const auto wait = std::exchange(memory_wait_, 0); wait != 0) {
    context->engine().allocator().Remove(wait);
  }
  claim_.Reset();
}

QueueItem::Step Work::Next() {
  point_wait_ = 0;
  lane_wait_ = 0;
  memory_wait_ = 0;
  switch (stage_) {
    case Stage::kNeedsPlan:
      return WaitForProducers();
    case Stage::kPlanned:
      return WaitForPoints();
    case Stage::kReady:
      return TakeLane();
    case Stage::kLeased:
      return PrepareAndLaunch();
    case Stage::kIdle:
    case Stage::kDeferred:
    case Stage::kPlanning:
    case Stage::kPreparing:
    case Stage::kLaunched:
      break;  // never: it is lent then, or not in the queue
  }
  return Step::kWait;
}

Nanos Work::WaitDeadline() const {
  const Nanos longest =
      NowNanos() +
      absl::ToInt64Nanoseconds(context()->engine().options().max_wait);
  return std::min(request.deadline, longest);
}

// Parks the work until none of them is to be waited for before the launch.
QueueItem::Step Work::WaitFor(absl::Span<const Point> points) {
  if (points.empty()) return Step::kRun;
  const std::shared_ptr<EvalContext> context = this->context();
  Engine& engine = context->engine();
  const Device* const device =
      engine.device().streams_wait() ? &engine.device() : nullptr;
  const std::shared_ptr<WorkQueue> queue = context->queue_;
  const uint64_t wait = queue->Park();
  point_wait_ = engine.dispatcher().WhenReady(
      points, device, WaitDeadline(), [queue, wait](absl::Status status) {
        queue->Resume(wait, std::move(status));
      });
  return Step::kWait;
}

// A work of the same context was launched before, as a rule; one of another
// context may have to be waited for.
QueueItem::Step Work::WaitForProducers() {
  absl::InlinedVector<Point, 4> pending;
  for (const InputSource& input : request.inputs) {
    const Work* const producer = input.producer.get();
    if (producer == nullptr || producer->readable_ || producer->done()) {
      continue;
    }
    Point end = producer->point();
    if (end.is_null()) continue;
    report_.AddWait(end, InsertedWait::Kind::kHost);
    pending.push_back(std::move(end));
  }
  if (!pending.empty()) return WaitFor(pending);
  if (absl::Status status = ResolveInputs(); !status.ok()) {
    EndUnlaunched(std::move(status));
    return Step::kRun;
  }
  const std::shared_ptr<WorkQueue> queue = context()->queue_;
  stage_ = Stage::kPlanning;
  queue->Lend(this);
  if (!FindPlan()) return Step::kWait;
  queue->Return(this);
  return Step::kRun;
}

// Shapes for the plan, and host data where it is needed and in one piece.
absl::Status Work::ResolveInputs() {
  const Program& program = *request.program;
  const Device& device = context()->engine().device();
  host_inputs_.clear();
  host_inputs_.resize(request.inputs.size());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InputSource& source = request.inputs[i];
    HostTensor& input = host_inputs_[i];
    const bool on_device = source.tensor.valid() || source.producer != nullptr;
    if (on_device && program.InputOnHost(i)) {
      return InvalidField(
          absl::StrCat("inputs[", i, "]"),
          absl::StrCat(
              "input \"", program.inputs()[i].name,
              "\" is read on the host while shapes are worked out; send its "
              "bytes with the request instead of a tensor on the device"));
    }
    if (source.producer != nullptr) {
      const Work& producer = *source.producer;
      if (producer.done() && !producer.status_.ok()) {
        return Inherited(producer.status_,
                         absl::StrCat("work ", producer.number_,
                                      ", whose result it reads, failed: "));
      }
      const auto& kept = producer.result_.kept;
      if (!producer.readable_ || source.producer_output >= kept.size() ||
          !kept[source.producer_output].valid()) {
        return WithField(
            absl::FailedPreconditionError(absl::StrCat(
                "input \"", program.inputs()[i].name, "\" comes from output ",
                source.producer_output, " of work ", producer.number_,
                ", which has not kept it")),
            absl::StrCat("inputs[", i, "]"));
      }
      request.inputs[i].tensor = kept[source.producer_output];
    }
    if (source.tensor.valid()) {
      const Device& lies_on = source.tensor.storage().device();
      if (&lies_on != &device) {
        return WithField(
            WrongDevice(absl::StrCat("the tensor of input \"",
                                     program.inputs()[i].name, "\""),
                        lies_on, device),
            absl::StrCat("inputs[", i, "]"));
      }
      input.dtype = source.tensor.spec().dtype;
      input.dims = source.tensor.spec().dims;
      continue;
    }
    input.dtype = source.dtype;
    input.dims = source.dims;
    WEIR_ASSIGN_OR_RETURN(const int64_t expected,
                          ByteSize(source.dtype, source.dims));
    size_t got = 0;
    for (const std::string_view piece : source.pieces) got += piece.size();
    if (got != static_cast<size_t>(expected)) {
      return InvalidField(
          absl::StrCat("inputs[", i, "]"),
          absl::StrCat("input \"", program.inputs()[i].name, "\" has ", got,
                       " bytes; its type and shape need ", expected));
    }
    if (source.pieces.size() == 1) {
      input.data = source.pieces[0].data();
    } else if (program.InputOnHost(i)) {
      return absl::InternalError(
          absl::StrCat("input \"", program.inputs()[i].name,
                       "\" is read on the host and must be in one piece"));
    }
  }
  return absl::OkStatus();
}

// REQUIRES: lent to the caller.
bool Work::FindPlan() {
  std::shared_ptr<const Plan> plan = request.program->FindPlan(host_inputs_);
  if (plan != nullptr) {
    report_.plan_was_cached = true;
    return Planned(std::move(plan));
  }
  const std::shared_ptr<EvalContext> context = this->context();
  ProgramCache& programs = context->engine().programs();
  AwaitCache(programs, [&] {
    return programs.MakePlan(
        request.program, host_inputs_, request.deadline,
        [context, this](ProgramCache::PlanOr made) {
          context->executor().Post([this, made = std::move(made)]() mutable {
            PlanMade(std::move(made));
          });
        },
        std::string(request.owner));
  });
  return false;
}

void Work::AwaitCache(ProgramCache& cache, absl::FunctionRef<uint64_t()> ask) {
  uint64_t unwanted = 0;
  {
    // Under the lock the work stays until its wait is known.
    MutexLock lock(&mu_);
    cache_wait_ = ask();
    if (AnyCancelled()) unwanted = std::exchange(cache_wait_, 0);
  }
  if (unwanted != 0) cache.Cancel(unwanted);
}

uint64_t Work::TakeCacheWait() {
  MutexLock lock(&mu_);
  return std::exchange(cache_wait_, 0);
}

void Work::PlanMade(ProgramCache::PlanOr plan) {
  TakeCacheWait();
  if (!plan.ok()) {
    EndUnlaunched(std::move(plan).status());
    return;
  }
  const std::shared_ptr<EvalContext> context = this->context();
  if (Planned(*std::move(plan))) context->queue_->Return(this);
}

bool Work::Planned(std::shared_ptr<const Plan> plan) {
  plan_ = std::move(plan);
  report_.planned_at = NowNanos();
  Engine& engine = context()->engine();
  memory_.SetPlan(plan_.get(), engine.device().host_addressable());
  absl::Status wanted = joined_ == nullptr ? observer_->OnPlanned(*this)
                                           : joined_->TellKept(*plan_);
  if (!wanted.ok()) {
    EndUnlaunched(std::move(wanted));
    return false;
  }
  if (ReturnsBeforeLaunch() && !returned_) {
    // The caller may change its bytes from now on.
    absl::Status kept = memory_.KeepInputs(engine.pinned());
    if (!kept.ok()) {
      EndUnlaunched(std::move(kept));
      return false;
    }
    Advance(WorkState::kCommitted);
    Return();
  } else {
    Advance(WorkState::kCommitted);
  }
  stage_ = Stage::kPlanned;
  return true;
}

QueueItem::Step Work::WaitForPoints() {
  const std::shared_ptr<EvalContext> context = this->context();
  WorkDependencies::Points points(request.after.begin(), request.after.end());
  for (const InputSource& input : request.inputs) {
    if (input.tensor.valid()) {
      points.push_back(input.tensor.storage().writer());
    }
  }
  const WorkDependencies::Points pending = dependencies_.Resolve(
      points, context->engine().device(),
      [&context](const Timeline* timeline) {
        return context->lane_.IsOn(timeline);
      },
      &report_);
  stage_ = Stage::kReady;
  return WaitFor(pending);
}

QueueItem::Step Work::TakeLane() {
  const std::shared_ptr<EvalContext> context = this->context();
  report_.ready_at = NowNanos();
  // What it was parked for is reached, or a stream can wait for it now.
  dependencies_.Refresh(context->engine().device());
  claim_ = context->lane_.Claim();
  StreamPool& pool = context->engine().streams();
  if (!claim_) {
    absl::StatusOr<StreamLease> now = pool.AcquireNow();
    if (now.ok() && *now) claim_ = context->lane_.Give(*std::move(now));
  }
  if (claim_) {
    stage_ = Stage::kLeased;
    return Step::kRun;
  }
  const uint64_t wait = context->queue_->Park();
  lane_wait_ = pool.Acquire(
      WaitDeadline(), [this, context, wait](absl::StatusOr<StreamLease> lease) {
        const absl::Status status = lease.status();
        StreamLease taken = status.ok() ? *std::move(lease) : StreamLease();
        // One that comes too late goes back without the lock.
        context->queue_->Resume(wait, status, [&] {
          if (!status.ok()) return;
          claim_ = context->lane_.Give(std::move(taken));
          stage_ = Stage::kLeased;
        });
      });
  return Step::kWait;
}

QueueItem::Step Work::PrepareAndLaunch() {
  const std::shared_ptr<EvalContext> context = this->context();
  Engine& engine = context->engine();
  Device& device = engine.device();
  const bool host_addressable = device.host_addressable();
  Lane* const lane = claim_.lane();
  if (!device.health().poisoned()) {
    const absl::StatusOr<bool> there = memory_.TakeAtHand(engine, *lane);
    if (!there.ok()) {
      EndUnlaunched(there.status());
      return Step::kRun;
    }
    if (!*there) return PrepareApart(lane, /*grow=*/true);
    if (memory_.StagesMuch()) return PrepareApart(lane, /*grow=*/false);
  }
  // On the CPU there is no queue of the driver's.
  const size_t launches =
      host_addressable ? 0 : plan_->launches() + memory_.copies();
  if (!context->lane_.Begin(claim_, launches)) return Step::kBlocked;
  const bool is_long =
      launches > engine.max_lane_launches() / 2 || plan_->computes_on_host();
  const bool is_first = device.loads_late() && plan_->measured_ns() == 0;
  Launcher launcher = Launcher::kWhoeverIsHere;
  if (!host_addressable && is_first) launcher = Launcher::kApart;
  if (!host_addressable && is_long) launcher = Launcher::kApartInPaces;
  LaunchOn(lane, launches, launcher);
  return Step::kRun;
}

// While it stands in line it may be dropped, and be gone when its turn comes.
QueueItem::Step Work::PrepareApart(Lane* lane, bool grow) {
  const std::shared_ptr<EvalContext> context = this->context();
  Engine& engine = context->engine();
  const std::shared_ptr<WorkQueue> queue = context->queue_;
  stage_ = Stage::kPreparing;
  longest_in_line_ = WaitDeadline();
  const uint64_t wait = queue->Park(/*timed=*/true);
  auto prepare = [this, queue, wait, lane, grow] {
    if (queue->Take(wait)) Prepare(lane, grow);
  };
  if (grow) {
    engine.allocator().Post(std::move(prepare), &memory_wait_);
  } else {
    // As many run there as there are lanes: nothing stays in line.
    engine.launcher().Post(std::move(prepare));
  }
  return Step::kWait;
}

// REQUIRES: lent to the caller. Nobody else touches the work or the lane.
void Work::Prepare(Lane* lane, bool grow) {
  const std::shared_ptr<EvalContext> context = this->context();
  longest_in_line_ = kNoDeadline;
  absl::Status status = StillWanted();
  if (status.ok() && grow) {
    status = memory_.Reserve(context->engine(), *lane);
  } else if (status.ok()) {
    memory_.StageInputs();
  }
  context->executor().Post([this, status = std::move(status)]() mutable {
    Prepared(std::move(status));
  });
}

void Work::Prepared(absl::Status status) {
  const std::shared_ptr<EvalContext> context = this->context();
  if (!status.ok()) {
    // On a lost device whatever is called fails; the cause is what counts.
    absl::Status lost = context->engine().device().health().status();
    EndUnlaunched(std::move(lost.ok() ? status : lost));
    return;
  }
  stage_ = Stage::kLeased;
  context->queue_->Return(this);
}

void Work::LaunchOn(Lane* lane, size_t launches, Launcher launcher) {
  const std::shared_ptr<EvalContext> context = this->context();
  Engine& engine = context->engine();
  Device& device = engine.device();
  Stream& stream = lane->stream();
  launches_ = launches;
  report_.leased_at = NowNanos();
  report_.stream_id = stream.id();
  report_.stream_priority = stream.priority();
  report_.lease_generation = lane->generation();
  absl::Status status = device.health().status();
  if (status.ok()) memory_.Assign(*lane);
  stage_ = Stage::kLaunched;
  if (joined_ != nullptr) {
    // What is behind it may read its members, which it has not given their
    // results yet.
    context->queue_->Hold();
  }
  context->queue_->Remove(this);
  if (!status.ok()) {
    End(std::move(status), /*launched=*/true);
    return;
  }
  readable_ = true;
  BackPoints({stream.timeline(), stream.last_sequence() + 1});
  expected = plan_->longest_ns();
  expected_device_time = plan_->longest_device_ns();
  const int64_t measured = plan_->measured_ns();
  waits_apart_ = dependencies_.AnyOpenElsewhere(stream.timeline().get());
  const bool run_inline =
      device.host_addressable() && measured > 0 && !dependencies_.AnyOpen() &&
      !plan_->time_varies() && return_at_ == WorkState::kCompleted &&
      measured <= absl::ToInt64Nanoseconds(engine.options().inline_below);
  report_.ran_inline = run_inline;
  if (joined_ == nullptr) observer_->OnLaunch(*this);
  if (launcher != Launcher::kWhoeverIsHere) {
    // What is behind it in the queue is launched after it.
    context->queue_->Hold();
    // Two paces may be in the queue.
    if (launcher == Launcher::kApartInPaces) {
      pace_launches_ = engine.max_lane_launches() / 2;
    }
    engine.launcher().Post([this, context, &stream] {
      // The work may be done, and gone, before this returns.
      stream.Enqueue(this, Stream::Inline::kNever);
      context->queue_->Release();
    });
    return;
  }
  // From here on the work may be done, and gone, at any moment.
  stream.Enqueue(this,
                 run_inline ? Stream::Inline::kIfIdle : Stream::Inline::kNever);
}

// Those of a joined work's members are not: if it fails they run again.
void Work::BackPoints(const Point& at) const {
  if (joined_ != nullptr) return;
  timeline_->Back(number_, at);
  if (deferred_end_ != nullptr) deferred_end_->Back(1, at);
  for (const Signal& signal : request.signal) {
    signal.timeline->Back(signal.value, at);
  }
}

}  // namespace weir
