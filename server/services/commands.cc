#include "server/services/commands.h"

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/evaluation/fresh_rng.h"
#include "server/models/repository.h"
#include "server/rpc/typed_method.h"
#include "server/services/evaluate_calls.h"
#include "server/services/failure_proto.h"
#include "server/services/report_proto.h"
#include "server/services/space_header.h"
#include "server/services/wait_command.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

// -- Tensors ------------------------------------------------------------------

absl::Status FreeTensor(Space& space, const v1::TensorFree& request) {
  return space.tensors().Remove(request.tensor()).status();
}

void FillSpec(const KeptTensor& tensor, v1::TensorSpec* spec) {
  const SymbolicShape shape = tensor.shape();
  if (!shape.has_value()) return;
  spec->set_dtype(static_cast<v1::DataType>(tensor.dtype()));
  for (const Dim& dim : *shape) {
    spec->add_shape(dim.known() ? dim.value() : kUnknownExtent);
  }
}

absl::Status DescribeTensor(Space& space, const v1::TensorDescribe& request,
                            v1::TensorDescription* response) {
  WEIR_ASSIGN_OR_RETURN(const auto tensor,
                        space.tensors().Find(request.tensor()));
  FillSpec(*tensor, response->mutable_spec());
  if (response->spec().dtype() == 0) response->clear_spec();
  response->set_device_uuid(tensor->engine().device().info().uuid);
  response->set_ready(tensor->dims().has_value());
  response->set_bytes(tensor->bytes());
  const absl::Status failure = tensor->failure();
  if (!failure.ok()) *response->mutable_failure() = ToFailure(failure);
  return absl::OkStatus();
}

// -- Contexts -----------------------------------------------------------------

absl::Status CreateContext(const ServiceContext& context, Space& space,
                           const v1::ContextCreate& request,
                           v1::ContextCreated* response) {
  if (!v1::EvalMode_IsValid(request.mode())) {
    return InvalidField(
        "mode", absl::StrCat(request.mode(), " is not an evaluation mode"));
  }
  if (request.mode() == v1::EVAL_MODE_DEFERRED) {
    return WithField(absl::UnimplementedError(
                         "DEFERRED evaluation is not offered by this server"),
                     "mode");
  }
  WEIR_ASSIGN_OR_RETURN(Engine* const engine,
                        context.engines.Find(request.device()));
  auto claim = space.contexts().Take(request.context());
  if (!claim.ok()) return WithField(claim.status(), "context");
  auto kept = std::make_shared<KeptContext>();
  WEIR_ASSIGN_OR_RETURN(kept->share, space.account().Take(Holding::kContexts));
  ContextOptions options;
  options.rng = request.has_rng_seed() ? RngState{.seed = request.rng_seed()}
                                       : FreshRng();
  if (request.mode() != v1::EVAL_MODE_UNSPECIFIED) {
    kept->mode = static_cast<EvalMode>(request.mode());
  }
  kept->engine = engine;
  kept->context = EvalContext::Create(engine, options);
  if (!claim->Fill(std::move(kept))) return SpaceNotFound(space.id());
  response->set_device_uuid(engine->device().info().uuid);
  response->set_rng_seed(options.rng.seed);
  return absl::OkStatus();
}

absl::Status CloseContext(Space& space, const v1::ContextClose& request) {
  WEIR_ASSIGN_OR_RETURN(const auto kept,
                        space.contexts().Find(request.context()));
  // Whoever is inside keeps it; then it is not for another to close.
  WEIR_ASSIGN_OR_RETURN(const Activation inside,
                        kept->context->Enter(NewHandlerId()));
  space.contexts().RemoveIf(request.context(), kept.get());
  return absl::OkStatus();
}

// -- Timelines ----------------------------------------------------------------

absl::Status CreateTimeline(Space& space, const v1::TimelineCreate& request) {
  auto claim = space.timelines().Take(request.timeline());
  if (!claim.ok()) return WithField(claim.status(), "timeline");
  auto kept = std::make_shared<KeptTimeline>();
  WEIR_ASSIGN_OR_RETURN(kept->share, space.account().Take(Holding::kTimelines));
  kept->timeline = std::make_shared<Timeline>(
      absl::StrCat(request.timeline()), /*device=*/nullptr,
      TimelineOwner{TimelineOwner::Kind::kCaller, request.timeline()});
  if (!claim->Fill(std::move(kept))) return SpaceNotFound(space.id());
  return absl::OkStatus();
}

absl::Status SignalTimeline(Space& space, const v1::TimelineSignal& request) {
  WEIR_ASSIGN_OR_RETURN(const auto kept,
                        space.timelines().Find(request.timeline()));
  return kept->timeline->Advance(request.value());
}

absl::Status DeleteTimeline(Space& space, const v1::TimelineDelete& request,
                            v1::TimelineDeleted* response) {
  WEIR_ASSIGN_OR_RETURN(const auto kept,
                        space.timelines().Remove(request.timeline()));
  response->set_value(kept->timeline->value());
  kept->timeline->Fail(WithReason(
      absl::CancelledError(absl::StrCat("timeline ", request.timeline(),
                                        " of the space was deleted")),
      "TIMELINE_DELETED"));
  return absl::OkStatus();
}

// -- Works --------------------------------------------------------------------

absl::Status QueryWork(const ServiceContext& context, Space& space,
                       const v1::Query& request, v1::WorkStatus* response) {
  if (!v1::ReportLevel_IsValid(request.report())) {
    return InvalidField(
        "report", absl::StrCat(request.report(), " is not a report level"));
  }
  WEIR_ASSIGN_OR_RETURN(const auto work, space.works().Find(request.work()));
  // Its end first: a state that is read later is not behind it.
  const std::optional<KeptWork::End> end = work->end();
  response->set_state(
      StateToProto(end.has_value() ? end->report.state : work->state()));
  if (!end.has_value()) return absl::OkStatus();
  if (!end->status.ok()) {
    *response->mutable_failure() = ToFailure(end->status);
  }
  FillReport(end->report,
             {.device = work->device().info(),
              .received = end->report.accepted_at,
              .replied = NowNanos(),
              .unix_minus_steady_ns = context.unix_minus_steady_ns,
              .full = request.report() == v1::REPORT_LEVEL_FULL},
             response->mutable_report());
  return absl::OkStatus();
}

absl::Status CancelWork(Space& space, const v1::Cancel& request) {
  WEIR_ASSIGN_OR_RETURN(const auto work, space.works().Find(request.work()));
  work->Cancel();
  return absl::OkStatus();
}

// A handler of handle(Space&, const Request&, Response*), which may leave out
// the last where that is empty.
template <typename Request, typename Response, typename Handle>
MethodHandler InSpace(const ServiceContext* context, Handle handle) {
  return UnaryHandler<Request, Response>(
      [context, handle](ServerCall& call, const Request& request,
                        Response* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(CheckSmallCommand(call));
        WEIR_ASSIGN_OR_RETURN(const SpaceUse space,
                              RequireSpace(*context, call));
        if constexpr (std::is_invocable_v<Handle, Space&, const Request&>) {
          return handle(*space, request);
        } else {
          return handle(*space, request, response);
        }
      });
}

}  // namespace

CommandHandlers::CommandHandlers(ServiceContext* context) {
  handlers_[Command::kEvaluate] = EvaluateHandler(context);
  handlers_[Command::kTensorPut] = TensorPutHandler(context);
  handlers_[Command::kTensorGet] = TensorGetHandler(context);
  handlers_[Command::kTensorFree] =
      InSpace<v1::TensorFree, v1::TensorFreed>(context, FreeTensor);
  handlers_[Command::kTensorDescribe] =
      InSpace<v1::TensorDescribe, v1::TensorDescription>(context,
                                                         DescribeTensor);
  handlers_[Command::kContextCreate] =
      InSpace<v1::ContextCreate, v1::ContextCreated>(
          context, [context](Space& space, const v1::ContextCreate& request,
                             v1::ContextCreated* response) {
            return CreateContext(*context, space, request, response);
          });
  handlers_[Command::kContextClose] =
      InSpace<v1::ContextClose, v1::ContextClosed>(context, CloseContext);
  handlers_[Command::kTimelineCreate] =
      InSpace<v1::TimelineCreate, v1::TimelineCreated>(context, CreateTimeline);
  handlers_[Command::kTimelineSignal] =
      InSpace<v1::TimelineSignal, v1::TimelineSignaled>(context,
                                                        SignalTimeline);
  handlers_[Command::kTimelineDelete] =
      InSpace<v1::TimelineDelete, v1::TimelineDeleted>(context, DeleteTimeline);
  handlers_[Command::kWait] = WaitHandler(context);
  handlers_[Command::kQuery] = InSpace<v1::Query, v1::WorkStatus>(
      context, [context](Space& space, const v1::Query& request,
                         v1::WorkStatus* response) {
        return QueryWork(*context, space, request, response);
      });
  handlers_[Command::kCancel] =
      InSpace<v1::Cancel, v1::Canceled>(context, CancelWork);
}

}  // namespace weir
