#include "client/cpp/status_details.h"

#include <google/protobuf/message_lite.h>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace weir::client {
namespace {

constexpr char kTypeUrlPrefix[] = "type.googleapis.com/";

template <typename Message>
std::string TypeUrl() {
  return absl::StrCat(kTypeUrlPrefix, Message::descriptor()->full_name());
}

// The payload of a message's type; false if there is none, or a broken one.
template <typename Message>
bool Read(const absl::Status& status, Message* message) {
  const absl::optional<absl::Cord> bytes =
      status.GetPayload(TypeUrl<Message>());
  return bytes.has_value() && message->ParseFromString(std::string(*bytes));
}

template <typename Message>
void Write(const Message& message, absl::Status* status) {
  status->SetPayload(TypeUrl<Message>(),
                     absl::Cord(message.SerializeAsString()));
}

}  // namespace

absl::Status ToStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
  google::rpc::Status message;
  if (!message.ParseFromString(status.error_details())) return result;
  for (const google::protobuf::Any& detail : message.details()) {
    // Messages that stand one behind the other are read as one: two details of
    // a type are merged.
    absl::Cord bytes =
        result.GetPayload(detail.type_url()).value_or(absl::Cord());
    bytes.Append(detail.value());
    result.SetPayload(detail.type_url(), std::move(bytes));
  }
  return result;
}

absl::Status ToStatus(const v1::Failure& failure) {
  absl::Status status(static_cast<absl::StatusCode>(failure.code()),
                      failure.message());
  if (!failure.reason().empty()) {
    google::rpc::ErrorInfo info;
    info.set_domain("weir");
    info.set_reason(failure.reason());
    *info.mutable_metadata() = failure.metadata();
    Write(info, &status);
  }
  if (!failure.field().empty()) {
    google::rpc::BadRequest bad;
    google::rpc::BadRequest::FieldViolation* const violation =
        bad.add_field_violations();
    violation->set_field(failure.field());
    violation->set_description(failure.message());
    Write(bad, &status);
  }
  if (failure.retry_after_ns() != 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(failure.retry_after_ns() /
                                             1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(
        static_cast<int32_t>(failure.retry_after_ns() % 1'000'000'000));
    Write(retry, &status);
  }
  if (failure.has_report()) Write(failure.report(), &status);
  return status;
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  if (google::rpc::ErrorInfo info; Read(status, &info)) {
    details.reason = info.reason();
    details.domain = info.domain();
    details.metadata = {info.metadata().begin(), info.metadata().end()};
  }
  if (google::rpc::RetryInfo retry; Read(status, &retry)) {
    details.retry_after = absl::Seconds(retry.retry_delay().seconds()) +
                          absl::Nanoseconds(retry.retry_delay().nanos());
  }
  if (google::rpc::BadRequest bad; Read(status, &bad)) {
    for (const auto& violation : bad.field_violations()) {
      details.field_violations.push_back(
          {violation.field(), violation.description()});
    }
  }
  if (v1::SyncReport report; Read(status, &report)) {
    details.report = std::move(report);
  }
  return details;
}

std::string ErrorText(const absl::Status& status) {
  const ErrorDetails details = DetailsOf(status);
  std::vector<std::string> parts;
  if (!details.reason.empty()) {
    parts.push_back(absl::StrCat("reason ", details.reason));
  }
  for (const FieldViolation& violation : details.field_violations) {
    parts.push_back(absl::StrCat("field ", violation.field));
  }
  if (details.retry_after.has_value()) {
    parts.push_back(absl::StrCat("retry after ",
                                 absl::FormatDuration(*details.retry_after)));
  }
  return absl::StrCat(
      absl::StatusCodeToString(status.code()), ": ", status.message(),
      parts.empty() ? "" : absl::StrCat(" [", absl::StrJoin(parts, ", "), "]"));
}

}  // namespace weir::client
