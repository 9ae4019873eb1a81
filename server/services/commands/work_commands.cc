#include "server/services/commands/work_commands.h"

#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/in_space.h"
#include "server/services/work_status.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

absl::Status QueryWork(const ServiceContext& context, Space& space,
                       const v1::Query& request, v1::WorkStatus* response) {
  WEIR_ASSIGN_OR_RETURN(const bool full, ReadsDetails(request.report()));
  WEIR_ASSIGN_OR_RETURN(const auto work, space.works().Find(request.work()));
  *response = StatusOf(context, *work, full);
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
