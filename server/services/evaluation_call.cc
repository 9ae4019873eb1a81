#include "server/services/evaluation_call.h"

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
  WorkRequest& request = evaluation_->request();
  const size_t tensors = program->inputs().size() + program->outputs().size();
  request.program = std::move(program);
  request.mode = settings.mode;
  request.seed = settings.seed;
  request.label.assign(settings.label);
  request.deadline = call_.deadline();
  request.owner = call_.peer();
  RunStep<&EvaluationCall::Bind, &EvaluationCall::WasBound>(
      call_, context_->long_steps, ReadingBytes(call_, tensors), this);
}

absl::Status EvaluationCall::Bind() {
  return binding_.Bind(program(), model(), *this, &evaluation_->request());
}

void EvaluationCall::WasBound(absl::Status status) {
  if (!status.ok()) {
    // It was not started: what its work says is about an earlier request.
    evaluation_.reset();
    return Fail(status);
  }
  evaluation_->Start(*this);
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
  const SyncReport& report = work().report();
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
  bytes_.emplace(*evaluation_, binding_.wanted());
  RunStep<&EvaluationCall::WriteReply, &EvaluationCall::WasWritten>(
      call_, context_->long_steps, bytes_->step_bytes(), this);
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
  // It may lie in what ends.
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const absl::Status kept = error;
  End(kept.code());
  call.Fail(kept);
}

// Before the answer, with which the arena may be gone.
void EvaluationCall::End(absl::StatusCode code) {
  if (model_ != nullptr) {
    context_->model_metrics.Record(*model_, code,
                                   evaluation_ == nullptr ? nullptr : &work(),
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
          .full = full};
}

absl::Status EvaluationCall::CheckReply(size_t bytes) const {
  return call_.CheckReplySize(bytes);
}

absl::Status EvaluationCall::ChargeReply(size_t bytes) {
  return call_.ChargeReply(bytes);
}

}  // namespace weir
