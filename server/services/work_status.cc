#include "server/services/work_status.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "server/services/failure_proto.h"
#include "server/services/report_proto.h"

namespace weir {

v1::WorkStatus StatusOf(const ServiceContext& context, const KeptWork& work,
                        bool full) {
  v1::WorkStatus status;
  // Its state first: of one that is said to be done the end is there.
  const WorkState state = work.state();
  const std::optional<KeptWork::End> end = work.end();
  status.set_state(StateToProto(end.has_value() ? end->report.state : state));
  if (!end.has_value()) return status;
  if (!end->status.ok()) *status.mutable_failure() = ToFailure(end->status);
  FillReport(end->report,
             {.device = work.device().info(),
              .received = end->report.accepted_at,
              .replied = NowNanos(),
              .unix_minus_steady_ns = context.unix_minus_steady_ns,
              .full = full},
             status.mutable_report());
  return status;
}

absl::StatusOr<bool> ReadsDetails(v1::ReportLevel level) {
  if (!v1::ReportLevel_IsValid(level)) {
    return InvalidField("report",
                        absl::StrCat(level, " is not a report level"));
  }
  return level == v1::REPORT_LEVEL_FULL;
}

}  // namespace weir
