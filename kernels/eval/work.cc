#include "kernels/eval/work.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/joined_work.h"

namespace weir {
namespace {

constexpr size_t kAlign = 256;
// To copy more than this takes long.
constexpr size_t kLongCopyBytes = size_t{1} << 20;

size_t Aligned(size_t bytes) { return (bytes + kAlign - 1) & ~(kAlign - 1); }

size_t PieceBytes(const InputSource& source) {
  size_t bytes = 0;
  for (std::string_view piece : source.pieces) bytes += piece.size();
  return bytes;
}

absl::Span<const StringRef> Strings(const InputSource& source) {
  const std::string_view piece = source.pieces[0];
  return {reinterpret_cast<const StringRef*>(piece.data()),
          piece.size() / sizeof(StringRef)};
}

// Room for a copy of the input: its bytes and, of strings, their text.
size_t CopyBytes(const InputSource& source) {
  size_t bytes = Aligned(PieceBytes(source));
  if (source.dtype == DType::kString && !source.pieces.empty()) {
    size_t text = 0;
    for (const StringRef& string : Strings(source)) text += string.size;
    bytes += Aligned(text);
  }
  return bytes;
}

void CopyStrings(absl::Span<const StringRef> from, std::byte* to) {
  StringRef* refs = reinterpret_cast<StringRef*>(to);
  std::byte* text = to + Aligned(from.size() * sizeof(StringRef));
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].size > 0) std::memcpy(text, from[i].data, from[i].size);
    refs[i] = {reinterpret_cast<const char*>(text), from[i].size};
    text += from[i].size;
  }
}

void CopyInput(const InputSource& source, std::byte* to) {
  if (source.dtype == DType::kString && !source.pieces.empty()) {
    CopyStrings(Strings(source), to);
    return;
  }
  for (std::string_view piece : source.pieces) {
    if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
    to += piece.size();
  }
}

}  // namespace

Work::Work() = default;
Work::~Work() = default;

void Work::Cancel() {
  cancelled_.store(true);
  const std::shared_ptr<EvalContext> context = this->context();
  if (context == nullptr) return;
  uint64_t plan_wait = 0;
  {
    MutexLock lock(&context->mu_);
    context->sweep_ = true;
    plan_wait = std::exchange(plan_wait_, 0);
    context->PostPump();
  }
  // The work may be gone from here on.
  if (plan_wait != 0) context->engine().programs().Cancel(plan_wait);
}

Point Work::point() const {
  if (deferred_end_ != nullptr) return {deferred_end_, 1};
  if (number_ == 0) return {};
  return {timeline_, number_};
}

std::shared_ptr<EvalContext> Work::context() const {
  MutexLock lock(&context_mu_);
  return context_;
}

void Work::SetContext(std::shared_ptr<EvalContext> context) {
  MutexLock lock(&context_mu_);
  context_.swap(context);
}

const TensorMeta& Work::OutputMeta(size_t i) const {
  return plan_->outputs()[i].meta;
}

absl::Span<const std::byte> Work::OutputBytes(size_t i) const {
  const Plan::Value& value = plan_->outputs()[i];
  return {output_bytes_ + value.offset, value.meta.bytes};
}

const Tensor& Work::OutputTensor(size_t i) const { return kept_[i]; }

void Work::Advance(WorkState to) {
  report_.state = to;
  state_.store(to, std::memory_order_release);
}

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
  plan_wait_ = 0;
  launches_ = 0;
  pace_launches_ = 0;
  returned_ = false;
  cancelled_.store(false);
  status_ = absl::OkStatus();
  report_.Clear();
  seed_ = 0;
  plan_ = nullptr;
  host_inputs_.clear();
  points_.clear();
  addresses_.clear();
  kept_.clear();
  bytes_stay_ = false;
  staged_ = false;
  owned_inputs_.Reset();
  staging_.Reset();
  output_buffer_.Reset();
  state_.store(WorkState::kNotEnqueued, std::memory_order_release);
}

bool Work::AnyCancelled() const {
  return cancelled() || (joined_ != nullptr && joined_->AnyCancelled());
}

absl::Status Work::StillWanted() const {
  if (AnyCancelled()) {
    return absl::CancelledError("cancelled before its next step");
  }
  if (request.deadline <= NowNanos()) {
    return absl::DeadlineExceededError(
        "the deadline passed before its next step");
  }
  return absl::OkStatus();
}

bool Work::ReadsInline() const {
  return std::find(request.outputs.begin(), request.outputs.end(),
                   OutputWish::kInline) != request.outputs.end();
}

// Shapes for the plan, and host data where it is needed and in one piece.
absl::Status Work::ResolveInputs() {
  const Program& program = *request.program;
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
      if (source.producer_output >= producer.kept_.size() ||
          !producer.kept_[source.producer_output].valid()) {
        return WithField(
            absl::FailedPreconditionError(absl::StrCat(
                "input \"", program.inputs()[i].name, "\" comes from output ",
                source.producer_output, " of work ", producer.number_,
                ", which has not kept it")),
            absl::StrCat("inputs[", i, "]"));
      }
      request.inputs[i].tensor = producer.kept_[source.producer_output];
    }
    if (source.tensor.valid()) {
      input.dtype = source.tensor.spec().dtype;
      input.dims = source.tensor.spec().dims;
      continue;
    }
    input.dtype = source.dtype;
    input.dims = source.dims;
    WEIR_ASSIGN_OR_RETURN(const int64_t expected,
                          ByteSize(source.dtype, source.dims));
    const size_t got = PieceBytes(source);
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

// An input is read where it lies if nothing has to be copied and its bytes stay
// until the work is done.
bool Work::Borrows(size_t i, bool host_addressable) const {
  const InputSource& source = request.inputs[i];
  if (source.pieces.size() != 1 || !bytes_stay_) return false;
  const size_t align = source.dtype == DType::kString ? alignof(StringRef)
                                                      : SizeOf(source.dtype);
  const bool aligned =
      reinterpret_cast<uintptr_t>(source.pieces[0].data()) % align == 0;
  return aligned && (host_addressable || plan_->inputs()[i].on_host);
}

absl::Status Work::OwnInputs(PinnedPool& pool) {
  size_t bytes = 0;
  for (const InputSource& source : request.inputs) bytes += CopyBytes(source);
  bytes_stay_ = true;
  if (bytes == 0) return absl::OkStatus();
  WEIR_ASSIGN_OR_RETURN(owned_inputs_, pool.Acquire(bytes));
  std::byte* to = owned_inputs_.data();
  for (InputSource& source : request.inputs) {
    if (source.pieces.empty()) continue;
    CopyInput(source, to);
    const size_t room = CopyBytes(source);
    source.pieces = {std::string_view(reinterpret_cast<const char*>(to),
                                      PieceBytes(source))};
    to += room;
  }
  return absl::OkStatus();
}

size_t Work::StagingBytes(bool host_addressable) const {
  size_t bytes = plan_->input_bytes();
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (request.inputs[i].tensor.valid()) continue;
    if (!plan_->inputs()[i].on_host || Borrows(i, host_addressable)) continue;
    bytes += CopyBytes(request.inputs[i]);
  }
  return bytes;
}

bool Work::Stages(bool host_addressable) const {
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    if (!request.inputs[i].tensor.valid() && !Borrows(i, host_addressable)) {
      return true;
    }
  }
  return false;
}

bool Work::NeedsResults(bool host_addressable) const {
  return host_addressable || ReadsInline();
}

size_t Work::ArenaBytes(bool host_addressable) const {
  const size_t blocks = host_addressable ? 0
                                         : Aligned(plan_->input_bytes()) +
                                               Aligned(plan_->output_bytes());
  return blocks + plan_->arena_bytes();
}

absl::StatusOr<bool> Work::TakeMemoryAtHand(Engine& engine, Lane& lane) {
  const bool host_addressable = engine.device().host_addressable();
  if (!staged_ && staging_.empty() && Stages(host_addressable)) {
    WEIR_ASSIGN_OR_RETURN(
        staging_, engine.pinned().AcquireNow(StagingBytes(host_addressable)));
    if (staging_.empty()) return false;
  }
  if (output_buffer_.empty() && NeedsResults(host_addressable)) {
    WEIR_ASSIGN_OR_RETURN(output_buffer_,
                          engine.pinned().AcquireNow(plan_->output_bytes()));
    if (output_buffer_.empty()) return false;
  }
  const size_t arena_bytes = ArenaBytes(host_addressable);
  device_inputs_ = nullptr;
  if (arena_bytes == 0) return true;
  device_inputs_ = lane.ArenaNow(arena_bytes);
  return device_inputs_ != nullptr;
}

absl::Status Work::ReserveMemory(Engine& engine, Lane& lane) {
  const bool host_addressable = engine.device().host_addressable();
  if (!staged_ && staging_.empty() && Stages(host_addressable)) {
    WEIR_ASSIGN_OR_RETURN(
        staging_, engine.pinned().Acquire(StagingBytes(host_addressable)));
  }
  if (output_buffer_.empty() && NeedsResults(host_addressable)) {
    WEIR_ASSIGN_OR_RETURN(output_buffer_,
                          engine.pinned().Acquire(plan_->output_bytes()));
  }
  if (const size_t bytes = ArenaBytes(host_addressable); bytes > 0) {
    WEIR_RETURN_IF_ERROR(lane.Arena(bytes).status());
  }
  return absl::OkStatus();
}

bool Work::StagesMuch(bool host_addressable) const {
  if (staged_) return false;
  size_t bytes = 0;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InputSource& source = request.inputs[i];
    if (source.tensor.valid() || Borrows(i, host_addressable)) continue;
    // How long many strings are is itself long to find out.
    if (bytes + PieceBytes(source) > kLongCopyBytes) return true;
    bytes += CopyBytes(source);
  }
  return bytes > kLongCopyBytes;
}

// The inputs that the device reads lie in the staging block as in the plan's
// input block, those that the host reads behind them.
absl::Status Work::StageInputs(Engine& engine) {
  if (staged_) return absl::OkStatus();
  const bool host_addressable = engine.device().host_addressable();
  addresses_.assign(request.inputs.size(), nullptr);
  size_t host_offset = Aligned(plan_->input_bytes());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InputSource& source = request.inputs[i];
    const Plan::Value& value = plan_->inputs()[i];
    if (source.tensor.valid()) {
      addresses_[i] = source.tensor.data();
      continue;
    }
    if (Borrows(i, host_addressable)) {
      addresses_[i] = source.pieces[0].data();
      continue;
    }
    if (staging_.empty()) {
      WEIR_ASSIGN_OR_RETURN(
          staging_, engine.pinned().Acquire(StagingBytes(host_addressable)));
    }
    std::byte* to =
        staging_.data() + (value.on_host ? host_offset : value.offset);
    CopyInput(source, to);
    if (value.on_host) host_offset += CopyBytes(source);
    report_.bytes_in += value.meta.bytes;
    addresses_[i] = to;
  }
  staged_ = true;
  return absl::OkStatus();
}

// What the device reads it reads on the device.
void Work::AssignAddresses(bool host_addressable) {
  if (host_addressable) return;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Plan::Value& value = plan_->inputs()[i];
    if (request.inputs[i].tensor.valid() || value.on_host) continue;
    addresses_[i] = device_inputs_ + value.offset;
  }
}

// Puts to use what TakeMemoryAtHand took, and takes kept tensors. Nothing here
// waits: what is not there is RESOURCE_EXHAUSTED.
absl::Status Work::AssignMemory(Engine& engine, const Lane& lane) {
  const bool host_addressable = engine.device().host_addressable();
  const size_t inputs = host_addressable ? 0 : Aligned(plan_->input_bytes());
  const size_t outputs = host_addressable ? 0 : Aligned(plan_->output_bytes());
  device_outputs_ = device_inputs_ + inputs;
  arena_ = device_inputs_ + inputs + outputs;
  WEIR_RETURN_IF_ERROR(StageInputs(engine));
  AssignAddresses(host_addressable);
  output_bytes_ = output_buffer_.data();
  if (host_addressable) device_outputs_ = output_buffer_.data();

  const bool keeps = std::find(request.outputs.begin(), request.outputs.end(),
                               OutputWish::kKeep) != request.outputs.end();
  kept_.assign(keeps ? request.outputs.size() : 0, Tensor());
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    if (request.outputs[i] != OutputWish::kKeep) continue;
    const TensorMeta& meta = plan_->outputs()[i].meta;
    if (meta.dtype == DType::kString) {
      // Its characters lie with the work's inputs and results.
      return absl::UnimplementedError(
          absl::StrCat("output ", i, " is text and cannot be kept"));
    }
    WEIR_ASSIGN_OR_RETURN(
        MemoryPool::Allocation allocation,
        engine.memory().Allocate(meta.bytes, context()->id()));
    // The whole tensor is overwritten by the copy of the result: what was there
    // before is never seen, so `must_zero` asks for nothing here.
    kept_[i] = Tensor(TensorSpec{meta.dtype, meta.dims, ""},
                      std::move(allocation.storage));
  }
  // Only now that nothing fails any more: the next on the stream is this work.
  const Point here{lane.stream().timeline(), lane.stream().last_sequence() + 1};
  for (const Tensor& kept : kept_) {
    if (kept.valid()) kept.storage().SetWriter(here);
  }
  for (const InputSource& source : request.inputs) {
    if (source.tensor.valid()) source.tensor.storage().AddReader(here);
  }
  return absl::OkStatus();
}

absl::Status Work::Launch(Stream& stream) {
  Device& device = stream.device();
  report_.launched_at = NowNanos();
  report_.sequence = completion.sequence;
  const bool host_addressable = device.host_addressable();
  // The strand may have held it for long, and runs it in this thread.
  const auto still_wanted = [this] { return StillWanted(); };
  std::optional<absl::FunctionRef<absl::Status()>> go_on;
  if (host_addressable) {
    WEIR_RETURN_IF_ERROR(StillWanted());
    go_on.emplace(still_wanted);
  }
  const auto make_room = [&still_wanted, &stream] {
    absl::Status status = still_wanted();
    return status.ok() ? stream.WaitForRoom(still_wanted) : status;
  };
  std::optional<absl::FunctionRef<absl::Status()>> pace;
  if (pace_launches_ > 0) {
    pace.emplace(make_room);
    go_on.emplace(still_wanted);
  }
  for (const HeldPoint& point : points_) {
    if (point->timeline == stream.timeline() || point->Outcome().has_value()) {
      continue;
    }
    absl::Status waited = stream.WaitOnDevice(*point);
    // If it is the point that failed, that is Settle's.
    if (!waited.ok() && !point->Outcome().has_value()) return waited;
  }
  if (host_addressable) {
    // Everything is reached: on what a failed work left nothing is run.
    WEIR_RETURN_IF_ERROR(DependencyStatus().value_or(absl::OkStatus()));
  }
  if (!host_addressable && !staging_.empty() && plan_->input_bytes() > 0) {
    WEIR_RETURN_IF_ERROR(stream.CopyToDevice(device_inputs_, staging_.data(),
                                             plan_->input_bytes()));
  }
  WEIR_RETURN_IF_ERROR(plan_->Run(PlanRun{.stream = stream,
                                          .team = device.cpu_team(),
                                          .inputs = addresses_,
                                          .outputs = device_outputs_,
                                          .arena = arena_,
                                          .random = {.seed = seed_},
                                          .go_on = go_on,
                                          .pace = pace,
                                          .pace_launches = pace_launches_}));
  bool all_inline = true;
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    const Plan::Value& value = plan_->outputs()[i];
    if (request.outputs[i] == OutputWish::kKeep && value.meta.bytes > 0) {
      WEIR_RETURN_IF_ERROR(stream.CopyOnDevice(
          kept_[i].data(), device_outputs_ + value.offset, value.meta.bytes));
    }
    all_inline = all_inline && request.outputs[i] == OutputWish::kInline;
  }
  if (!host_addressable && all_inline && plan_->output_bytes() > 0) {
    report_.bytes_out = plan_->output_bytes();
    WEIR_RETURN_IF_ERROR(stream.CopyToHost(
        output_buffer_.data(), device_outputs_, plan_->output_bytes()));
  } else if (!host_addressable) {
    for (size_t i = 0; i < request.outputs.size(); ++i) {
      const Plan::Value& value = plan_->outputs()[i];
      if (request.outputs[i] != OutputWish::kInline || value.meta.bytes == 0) {
        continue;
      }
      report_.bytes_out += value.meta.bytes;
      WEIR_RETURN_IF_ERROR(
          stream.CopyToHost(output_buffer_.data() + value.offset,
                            device_outputs_ + value.offset, value.meta.bytes));
    }
  }
  Advance(WorkState::kScheduled);
  if (return_at_ <= WorkState::kScheduled) Return();
  return absl::OkStatus();
}

// A stream that waited on the device for a work that then failed has run on
// what that work left behind: its own result is worth nothing.
std::optional<absl::Status> Work::DependencyStatus() const {
  std::optional<absl::Status> status = absl::OkStatus();
  for (const HeldPoint& point : points_) {
    const std::optional<absl::Status> outcome = point->Outcome();
    if (!outcome.has_value()) {
      status = std::nullopt;
    } else if (!outcome->ok()) {
      return Inherited(
          *outcome,
          absl::StrCat("it depends on timeline ", point->timeline->name(),
                       " at ", point->value, ", which failed: "));
    }
  }
  return status;
}

// In what a failed work left behind a kernel may find whatever fault: that work
// is to blame.
std::optional<absl::Status> Work::Settle(const Completion& done) {
  const bool faulty = done.fault != FaultCode::kNone;
  if (!done.status.ok() && !faulty) return done.status;
  std::optional<absl::Status> inherited = DependencyStatus();
  if (!faulty || inherited != absl::OkStatus()) return inherited;
  return plan_->FaultAt(done.fault_node, done.fault);
}

void Work::NoteDeviceError(const Completion& done, const absl::Status& status) {
  DeviceError error;
  error.code = static_cast<int32_t>(done.fault);
  error.text = std::string(status.message());
  error.name = Reason(status);
  // What a call of the backend's own said.
  for (const auto& [key, value] : Metadata(status)) {
    if (key == "name") error.name = value;
    if (key == "code") (void)absl::SimpleAtoi(value, &error.code);
  }
  error.sticky = done.status.code() == absl::StatusCode::kUnavailable;
  error.node = NodeAtFault(status);
  report_.device_errors.push_back(std::move(error));
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

void Work::Complete(const Completion& done) {
  report_.completed_at = done.completed_at;
  report_.sequence = done.sequence;
  absl::Status status = done.outcome;
  if (!done.status.ok() && !GaveUp(status) && !IsInherited(status)) {
    NoteDeviceError(done, status);
  }
  if (return_at_ == WorkState::kCompleted) report_.wait = WaitKind::kRecord;
  if (status.ok()) {
    plan_->RecordDuration(done.completed_at - done.started_at,
                          done.device_time);
  }
  context()->Finish(this, std::move(status), /*launched=*/true);
}

}  // namespace weir
