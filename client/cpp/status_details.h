// What a failed call tells beyond code and message: details that programs can
// act on. They ride on the absl::Status of the call. Pure; any thread.
//
//   auto response = client.Evaluate(request);
//   if (!response.ok()) {
//     const ErrorDetails error = DetailsOf(response.status());
//     if (error.reason == "QUEUE_FULL" && error.retry_after) ...
//   }
#pragma once

#include <grpcpp/support/status.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/weir/v1/failure.pb.h"
#include "proto/weir/v1/sync_report.pb.h"

namespace weir::client {

// A field of the request that was at fault.
struct FieldViolation {
  std::string field;  // its path, "inputs[2].shape"
  std::string description;
};

// Empty where the server said nothing of the kind.
struct ErrorDetails {
  std::string reason;  // for programs, "QUEUE_FULL"; docs/errors.md lists them
  std::string domain;  // who named the reason; "weir"
  std::map<std::string, std::string> metadata;  // of the reason
  std::optional<absl::Duration> retry_after;    // worth trying again then
  std::vector<FieldViolation> field_violations;
  std::optional<v1::SyncReport> report;  // of the work that failed

  // The first field at fault.
  std::string field() const {
    return field_violations.empty() ? "" : field_violations[0].field;
  }
};

// Code and message of `status`, and each detail of its google.rpc.Status as a
// payload under the detail's type URL, those of unknown types too. What cannot
// be read as such is left out.
absl::Status ToStatus(const grpc::Status& status);

// The same of a part of a call, such as a command.
absl::Status ToStatus(const v1::Failure& failure);

// The details that ToStatus has put there.
ErrorDetails DetailsOf(const absl::Status& status);

// For people: "NOT_FOUND: message [reason R, field F, retry after 20ms]".
std::string ErrorText(const absl::Status& status);

}  // namespace weir::client
