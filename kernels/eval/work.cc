#include "kernels/eval/work.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/joined_work.h"

namespace weir {

Work::Work() = default;
Work::~Work() = default;

void Work::Cancel() {
  cancelled_.store(true);
  std::shared_ptr<EvalContext> context;
  std::shared_ptr<DeferredSet> deferred_in;
  uint64_t cache_wait = 0;
  {
    MutexLock lock(&mu_);
    context = context_;
    deferred_in = HoldIfThere(deferred_in_);
    cache_wait = std::exchange(cache_wait_, 0);
  }
  if (deferred_in != nullptr) deferred_in->Sweep();
  if (context == nullptr) return;
  // The work may be gone from here on.
  context->queue_->Sweep();
  context->CallOffJoined();
  if (cache_wait != 0) context->engine().programs().Cancel(cache_wait);
}

void Work::Advance(WorkState to) {
  report_.state = to;
  progress_.Advance(to);
}

Point Work::point() const {
  if (deferred_end_ != nullptr) return {deferred_end_, 1};
  if (number_ == 0) return {};
  return {timeline_, number_};
}

std::shared_ptr<EvalContext> Work::context() const {
  MutexLock lock(&mu_);
  return context_;
}

bool Work::IsOf(const EvalContext& context) const {
  MutexLock lock(&mu_);
  return context_.get() == &context;
}

void Work::SetContext(std::shared_ptr<EvalContext> context) {
  MutexLock lock(&mu_);
  context_.swap(context);
  deferred_in_.reset();
}

const TensorMeta& Work::OutputMeta(size_t i) const {
  return plan_->outputs()[i].meta;
}

absl::Span<const std::byte> Work::OutputBytes(size_t i) const {
  const Plan::Value& value = plan_->outputs()[i];
  return {result_.bytes + value.offset, value.meta.bytes};
}

const Tensor& Work::OutputTensor(size_t i) const { return result_.kept[i]; }

void Work::Return() {
  if (returned_) return;
  returned_ = true;
  observer_->OnReturn(*this);
}

void Work::Reset() {
  stage_ = Stage::kIdle;
  deferred_end_ = nullptr;
  timeline_ = nullptr;
  number_ = 0;
  point_wait_ = 0;
  lane_wait_ = 0;
  memory_wait_ = 0;
  longest_in_line_ = kNoDeadline;
  launches_ = 0;
  pace_launches_ = 0;
  waits_apart_ = false;
  returned_ = false;
  cancelled_.store(false);
  readable_.store(false);
  status_ = absl::OkStatus();
  report_.Clear();
  seed_ = 0;
  drawn_from_.reset();
  plan_ = nullptr;
  host_inputs_.clear();
  dependencies_.Clear();
  memory_.Reset();
  result_.Reset();
  progress_.Reset();
}

// The mode and what follows from it are resolved here and never change
// afterwards.
void Work::Accept(EvalMode mode, WorkObserver* observer) {
  Reset();
  observer_ = observer;
  mode_ = request.mode.value_or(mode);
  report_.accepted_at = NowNanos();
  if (request.outputs.empty()) {
    request.outputs.assign(request.program->outputs().size(),
                           OutputWish::kInline);
  }
  return_at_ =
      request.Reads(OutputWish::kInline) || mode_ == EvalMode::kSyncFull
          ? WorkState::kCompleted
      : mode_ == EvalMode::kSyncCpu ? WorkState::kScheduled
                                    : WorkState::kCommitted;
  if (return_at_ == WorkState::kCompleted) memory_.BytesStay();
  dependencies_.Hold(request.after);
}

// Nobody is told of it, and its members' bytes stay.
void Work::BeginJoined(uint64_t last_number) {
  Reset();
  number_ = last_number;
  mode_ = EvalMode::kDeferred;
  returned_ = true;
  memory_.BytesStay();
  stage_ = Stage::kPlanning;
}

void Work::NoteJoined(const SyncReport& report, size_t works) {
  const Nanos accepted_at = report_.accepted_at;
  report_ = report;
  report_.accepted_at = accepted_at;
  report_.joined_works = works;
}

void Work::Place(std::shared_ptr<Timeline> timeline, uint64_t number) {
  timeline_ = std::move(timeline);
  number_ = number;
  // Until it is whole.
  stage_ = Stage::kPlanning;
}

void Work::Defer(std::shared_ptr<Timeline> end,
                 std::weak_ptr<DeferredSet> set) {
  stage_ = Stage::kDeferred;
  deferred_end_ = std::move(end);
  {
    MutexLock lock(&mu_);
    deferred_in_ = std::move(set);
  }
  Return();
}

bool Work::AnyCancelled() const {
  return cancelled() || (joined_ != nullptr && joined_->AnyCancelled());
}

absl::Status Work::WantedBefore(const char* what, Nanos now) const {
  if (AnyCancelled()) {
    return absl::CancelledError(absl::StrCat("cancelled before ", what));
  }
  if (request.deadline <= now) {
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline passed before ", what));
  }
  return absl::OkStatus();
}

absl::Status Work::StillWanted() const {
  return WantedBefore("its next step", NowNanos());
}

std::string Work::Describe() const {
  std::string text =
      absl::StrCat("work ", number_, " of context ", context()->id());
  if (!request.label.empty()) {
    absl::StrAppend(&text, " \"", request.label, "\"");
  }
  const std::string nodes = plan_->Describe();
  if (!nodes.empty()) absl::StrAppend(&text, ": ", nodes);
  return text;
}

// -- Its end ------------------------------------------------------------------

void Work::Refuse(absl::Status status) {
  dependencies_.Clear();
  status_ = std::move(status);
  Tell();
}

void Work::EndUnlaunched(absl::Status status) {
  const std::shared_ptr<WorkQueue> queue = context()->queue_;
  CallOff();
  if (joined_ == nullptr) queue->Remove(this);
  End(std::move(status), /*launched=*/false);
  queue->Pump();
}

void Work::End(absl::Status status, bool launched) {
  std::shared_ptr<EvalContext> context = this->context();
  status = WithCallSite(status);
  if (launched) {
    context->LeaveLane(launches_, !status.ok() && !GaveUp(status));
  }
  if (joined_ != nullptr) {
    context->EndJoined(joined_, std::move(status), launched);
    return;
  }
  for (InputSource& input : request.inputs) input.producer = nullptr;
  memory_.ReleaseInputs();
  dependencies_.Clear();
  for (const Signal& signal : request.signal) {
    absl::Status moved = signal.timeline->Advance(signal.value, status);
    if (!moved.ok() && status.ok()) {
      status = Annotate(moved, "the signal after the work failed: ");
    }
  }
  if (!status.ok() && report_.device_errors.empty() && IsDeviceLoss(status) &&
      !IsInherited(status)) {
    NoteDeviceError(status, /*sticky=*/true);  // it came after the loss
  }
  // A work may be kept for its next use; what nobody reads must not stay.
  if (!status.ok() || !request.Reads(OutputWish::kInline)) {
    result_.buffer.Reset();
  }
  if (!status.ok() && !readable_) result_.kept.clear();
  status_ = std::move(status);
  if (number_ != 0) context->EndPlaced(*this);
  if (deferred_end_ != nullptr) {
    deferred_end_->Advance(1, status_).IgnoreError();
  }
  context = nullptr;
  Tell();
}

absl::Status Work::WithCallSite(const absl::Status& status) const {
  return request.call_sites == nullptr ? status
                                       : request.call_sites->Tell(status);
}

void Work::Tell() {
  const std::shared_ptr<Work> self = std::move(self_);
  SetContext(nullptr);
  Advance(status_.ok() ? WorkState::kCompleted : WorkState::kError);
  // What a watcher holds, perhaps the work, goes last.
  const auto watchers = progress_.TakeWatchers();
  Return();
  observer_->OnDone(*this);
}

}  // namespace weir
