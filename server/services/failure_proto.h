// A status as the message weir.v1.Failure: what is told of a part of a call
// that goes on. Pure; any thread.
#pragma once

#include "absl/status/status.h"
#include "proto/weir/v1/failure.pb.h"

namespace weir {

// Where a status has the weir.v1.SyncReport of its work.
inline constexpr char kReportDetail[] =
    "type.googleapis.com/weir.v1.SyncReport";

// `status` is not OK. What is long is cut as in the status of a call.
v1::Failure ToFailure(const absl::Status& status);

}  // namespace weir
