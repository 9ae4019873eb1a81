#include "server/services/evaluation_call.h"

#include <algorithm>
#include <utility>

#include "kernels/base/clock.h"
#include "kernels/base/status_macros.h"
#include "server/services/long_step.h"

namespace weir {

EvaluationCall::EvaluationCall(ServiceContext* context, ServerCall& call)
    : context_(context), call_(call), binding_(&call.arena()) {}

EvaluationCall::~EvaluationCall() = default;

void EvaluationCall::Begin(ArenaPtr<EvaluationCall> self) {
  EvaluationCall* const call = self.get();
  call->self_ = std::move(self);
  RunStep<&EvaluationCall::Read, &EvaluationCall::WasRead>(
      call->call_, call->context_->long_steps, ReadingBytes(call->call_), call);
}

void EvaluationCall::WasRead(absl::Status status) {
  if (!status.ok()) return Fail(status);
  FindProgram();
}

void EvaluationCall::Evaluate(std::shared_ptr<const Program> program,
                              const Settings& settings) {
  evaluation_ = context_->evaluations.Lend(context_->engines.Of(*program));
  evaluation_->request().owner = call_.peer();
  Begin(std::move(program), settings);
}

void EvaluationCall::EvaluateIn(const SpacePlace& place,
                                std::shared_ptr<const Program> program,
                                const Settings& settings) {
  auto in_space = SpaceEvaluation::Create(&call_, place);
  if (!in_space.ok()) return Fail(in_space.status());
  in_space_ = *std::move(in_space);
  Begin(std::move(program), settings);
}

void EvaluationCall::Begin(std::shared_ptr<const Program> program,
                           const Settings& settings) {
  const size_t tensors = program->inputs().size() + program->outputs().size();
  request().program = std::move(program);
  request().mode = settings.mode;
  request().seed = settings.seed;
  request().cpu_threads = settings.cpu_threads;
  request().label.assign(settings.label);
  request().deadline = call_.deadline();
  RunStep<&EvaluationCall::Bind, &EvaluationCall::WasBound>(
      call_, context_->long_steps, ReadingBytes(call_, tensors), this);
}

absl::Status EvaluationCall::Bind() {
  WEIR_RETURN_IF_ERROR(binding_.Bind(program(), model(), *this, &request()));
  return WasBoundTo(binding_.wanted());
}

void EvaluationCall::WasBound(absl::Status status) {
  if (!status.ok()) {
    // It was not started: what its work says is about an earlier request.
    evaluation_.reset();
    return Fail(status);
  }
  if (in_space_ == nullptr) return evaluation_->Start(*this);
  const bool until_done =
      request().mode == EvalMode::kSyncFull || InlineReads(request()) > 0;
  in_space_->Start(
      until_done ? SpaceWork::Until::kDone : SpaceWork::Until::kReturned,
      [](const Work& work, const void* self) {
        return CheckPlannedOutputs(work,
                                   *static_cast<const EvaluationCall*>(self));
      },
      [](absl::Status status, void* self) {
        static_cast<EvaluationCall*>(self)->Returned(std::move(status));
      },
      this);
}

void EvaluationCall::Returned(absl::Status status) {
  if (!in_space_->accepted()) return Fail(status);
  if (in_space_->awaited_end()) return Done();
  if (!status.ok()) return FailDescribed(binding_.WithRequestField(status));
  Answer();
}

absl::Status EvaluationCall::Planned(const Work& work) {
  return CheckPlannedOutputs(work, *this);
}

void EvaluationCall::Launched() { call_.Launched(); }

void EvaluationCall::Submitted() {
  call_.OnCancel(
      [](ServerCall&, void* self) {
        static_cast<EvaluationCall*>(self)->evaluation_->Cancel();
      },
      this);
}

void EvaluationCall::Wake(Evaluation& evaluation) {
  call_.Resume(
      [](ServerCall&, void* woken) { static_cast<Evaluation*>(woken)->GoOn(); },
      &evaluation);
}

void EvaluationCall::Done() {
  const SyncReport& report = this->report();
  StageTimes times;
  if (report.ready_at != 0) times.queue = report.ready_at - call_.received();
  if (report.leased_at != 0) times.lane = report.leased_at - report.ready_at;
  if (report.launched_at != 0) {
    times.compute = report.completed_at - report.launched_at;
  }
  context_->metrics.RecordStages(times);
  if (!work().status().ok()) {
    return FailDescribed(binding_.WithRequestField(work().status()));
  }
  const absl::Status wanted = call_.StillWanted(report.completed_at);
  if (!wanted.ok()) return FailDescribed(wanted);
  Answer();
}

void EvaluationCall::Answer() {
  if (in_space_ == nullptr) {
    bytes_.emplace(evaluation_->results(), binding_.wanted());
  } else {
    bytes_.emplace(in_space_->results(), InlineOutputs());
  }
  RunStep<&EvaluationCall::WriteReply, &EvaluationCall::WasWritten>(
      call_, context_->long_steps, bytes_->step_bytes(), this);
}

// Of those that are wanted, in a space.
std::span<const size_t> EvaluationCall::InlineOutputs() {
  if (InlineReads(request()) == 0) return {};
  const std::span<const size_t> wanted = binding_.wanted();
  const std::span<size_t> all =
      call_.arena().AllocateSpan<size_t>(wanted.size());
  const auto end = std::copy_if(
      wanted.begin(), wanted.end(), all.begin(), [&](size_t output) {
        return request().outputs[output] == OutputWish::kInline;
      });
  return all.first(static_cast<size_t>(end - all.begin()));
}

absl::Status EvaluationCall::WriteReply() {
  WEIR_ASSIGN_OR_RETURN(reply_, Write(binding_.wanted(), *bytes_));
  return CheckReply(reply_.size());
}

void EvaluationCall::WasWritten(absl::Status status) {
  if (!status.ok()) return FailDescribed(std::move(status));
  ServerCall& call = call_;
  ReplyBuffer reply = std::move(reply_);
  End(absl::StatusCode::kOk);
  call.Reply(std::move(reply));
}

void EvaluationCall::FailDescribed(absl::Status error) {
  Describe(&error);
  Fail(error);
}

void EvaluationCall::Fail(const absl::Status& error) {
  ServerCall& call = call_;
  const absl::Status kept = InItsWords(error);
  End(kept.code());
  call.Fail(kept);
}

// Before the answer, with which the arena may be gone.
void EvaluationCall::End(absl::StatusCode code) {
  if (model_ != nullptr) {
    const bool done = evaluation_ != nullptr ||
                      (in_space_ != nullptr && in_space_->accepted() &&
                       in_space_->awaited_end());
    context_->model_metrics.Record(*model_, code, done ? &work() : nullptr,
                                   call_.received());
  }
  const ArenaPtr<EvaluationCall> self = std::move(self_);
}

ReportFrame EvaluationCall::Frame(bool full) const {
  return {.device = program().device().info(),
          .received = call_.received(),
          .replied = NowNanos(),
          .unix_minus_steady_ns = context_->unix_minus_steady_ns,
          .inline_reads = InlineReads(work().request),
          .full = full,
          .transport = transport()};
}

absl::Status EvaluationCall::CheckReply(size_t bytes) const {
  return call_.CheckReplySize(bytes);
}

absl::Status EvaluationCall::ChargeReply(size_t bytes) {
  return call_.ChargeReply(bytes);
}

}  // namespace weir
