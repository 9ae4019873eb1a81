#include "server/services/space_evaluation.h"

#include "kernels/base/status_macros.h"
#include "server/evaluation/fresh_rng.h"

namespace weir {
namespace {

// For a context that nobody else is ever in.
std::shared_ptr<EvalContext> OwnContext(Engine* engine) {
  ContextOptions options;
  options.rng = FreshRng();
  return EvalContext::Create(engine, options);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpaceEvaluation>> SpaceEvaluation::Create(
    ServerCall* call, const SpacePlace& place) {
  WEIR_ASSIGN_OR_RETURN(
      std::shared_ptr<SpaceWork> work,
      SpaceWork::Create(place.space, *place.engine, call->peer()));
  return std::unique_ptr<SpaceEvaluation>(
      new SpaceEvaluation(call, place, std::move(work)));
}

void SpaceEvaluation::Start(SpaceWork::Until until, CheckPlanned check,
                            Then then, void* arg) {
  until_ = until;
  check_ = check;
  then_ = then;
  arg_ = arg;
  const bool waits = until == SpaceWork::Until::kDone || place_.queue ||
                     !work_->request().after.empty();
  if (waits && call_->has_place()) {
    auto share = place_.space->account().Take(Holding::kWaits);
    if (!share.ok()) return Finish(share.status());
    wait_ = *std::move(share);
  }
  entry_.Run(
      place_.context == nullptr ? OwnContext(place_.engine) : place_.context,
      place_.queue && place_.context != nullptr, work_->request().deadline,
      [](absl::StatusOr<Activation> activation, void* self) {
        static_cast<SpaceEvaluation*>(self)->Entered(std::move(activation));
      },
      this);
}

// If the caller has left by now, the work is cancelled in here.
void SpaceEvaluation::Entered(absl::StatusOr<Activation> activation) {
  activation_ = std::move(activation);
  if (!activation_.ok()) return Finish(activation_.status());
  const absl::Status status = work_->Submit(*activation_, *this, until_);
  if (!status.ok()) return Finish(status);
  accepted_ = true;
  // It waits in its context from here on, which has bounds of its own.
  call_->set_work_number(work_->number());
  call_->Launched();
  call_->OnCancel(
      [](ServerCall&, void* self) {
        static_cast<SpaceEvaluation*>(self)->work_->Cancel();
      },
      this);
}

void SpaceEvaluation::Ready() {
  call_->Resume(
      [](ServerCall&, void* arg) {
        auto* const self = static_cast<SpaceEvaluation*>(arg);
        self->Finish(self->awaited_end() ? self->work().status()
                                         : self->work_->returned().status);
      },
      this);
}

// May end this object.
void SpaceEvaluation::Finish(absl::Status status) {
  if (activation_.ok()) activation_->Leave();
  then_(std::move(status), arg_);
}

}  // namespace weir
