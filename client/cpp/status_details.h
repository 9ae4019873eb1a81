// What a failed call's status says beyond code and message. Pure; any thread.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace weir::client {

// "message [reason R, field F, retry after 20ms]".
absl::Status ToStatus(const grpc::Status& status);

}  // namespace weir::client
