// absl::Status -> grpc::Status. Reasons, retry hints and fields that ride on
// an absl::Status (kernels/base/error_info.h) become google.rpc.ErrorInfo,
// RetryInfo and BadRequest in grpc-status-details-bin, readable by stock
// clients. A payload whose URL starts with "type.googleapis.com/" is passed on
// as a detail of that type. Pure functions, any thread.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace weir {

inline constexpr char kErrorDomain[] = "weir";
inline constexpr char kTypeUrlPrefix[] = "type.googleapis.com/";

// Trailers are limited to 8 KiB by stock clients. Longer messages are cut, and
// of the details those are sent that fit: ErrorInfo has the first claim, then
// RetryInfo, BadRequest and the others.
inline constexpr size_t kMaxStatusMessageBytes = 1024;
inline constexpr size_t kMaxStatusDetailBytes = 3584;

// What is kept of an error until it is sent: without what is cut or left out in
// any case.
absl::Status CutStatus(const absl::Status& status);

grpc::Status ToGrpcStatus(const absl::Status& status);

}  // namespace weir
