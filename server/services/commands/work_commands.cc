#include "server/services/commands/work_commands.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/in_space.h"
#include "server/services/failure_proto.h"
#include "server/services/report_proto.h"
#include "server/spaces/kept_work.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

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

}  // namespace

void AddWorkCommands(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(Command::kQuery,
                InSpace<v1::Query, v1::WorkStatus>(
                    context, [context](Space& space, const v1::Query& request,
                                       v1::WorkStatus* response) {
                      return QueryWork(*context, space, request, response);
                    }));
  handlers->Add(Command::kCancel,
                InSpace<v1::Cancel, v1::Canceled>(context, CancelWork));
}

}  // namespace weir
