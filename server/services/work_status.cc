#include "server/services/work_status.h"

#include <optional>

#include "kernels/base/clock.h"
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

}  // namespace weir
