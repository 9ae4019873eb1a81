#include "client/cpp/status_details.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace weir::client {
namespace {

void Append(std::string* details, std::string part) {
  absl::StrAppend(details, details->empty() ? " [" : ", ", part);
}

}  // namespace

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string details;
  google::rpc::Status message;
  if (message.ParseFromString(status.error_details())) {
    for (const google::protobuf::Any& any : message.details()) {
      google::rpc::ErrorInfo info;
      google::rpc::RetryInfo retry;
      google::rpc::BadRequest bad;
      if (any.UnpackTo(&info) && !info.reason().empty()) {
        Append(&details, absl::StrCat("reason ", info.reason()));
      } else if (any.UnpackTo(&bad)) {
        for (const auto& violation : bad.field_violations()) {
          Append(&details, absl::StrCat("field ", violation.field()));
        }
      } else if (any.UnpackTo(&retry)) {
        const absl::Duration delay =
            absl::Seconds(retry.retry_delay().seconds()) +
            absl::Nanoseconds(retry.retry_delay().nanos());
        Append(&details,
               absl::StrCat("retry after ", absl::FormatDuration(delay)));
      }
    }
  }
  if (!details.empty()) details += "]";
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(status.error_message(), details));
}

}  // namespace weir::client
