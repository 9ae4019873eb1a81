#include "server/services/commands/timeline_commands.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/in_space.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

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
  if (request.number_only()) return absl::OkStatus();
  kept->timeline->Fail(WithReason(
      absl::CancelledError(absl::StrCat("timeline ", request.timeline(),
                                        " of the space was deleted")),
      "TIMELINE_DELETED"));
  return absl::OkStatus();
}

}  // namespace

void AddTimelineCommands(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(Command::kTimelineCreate,
                InSpace<v1::TimelineCreate, v1::TimelineCreated>(
                    context, CreateTimeline));
  handlers->Add(Command::kTimelineSignal,
                InSpace<v1::TimelineSignal, v1::TimelineSignaled>(
                    context, SignalTimeline));
  handlers->Add(Command::kTimelineDelete,
                InSpace<v1::TimelineDelete, v1::TimelineDeleted>(
                    context, DeleteTimeline));
}

}  // namespace weir
