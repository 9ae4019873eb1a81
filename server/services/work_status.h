// How far a numbered work has come, as it is told.
#pragma once

#include "absl/status/statusor.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/service_context.h"
#include "server/spaces/kept_work.h"

namespace weir {

// `full`: with the details of its report, once it is done. Any thread.
v1::WorkStatus StatusOf(const ServiceContext& context, const KeptWork& work,
                        bool full);

// What a request for it asks for: whether with details. INVALID_ARGUMENT, with
// the field "report", for what is no level.
absl::StatusOr<bool> ReadsDetails(v1::ReportLevel level);

}  // namespace weir
