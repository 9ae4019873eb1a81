#include "client/cpp/status_details.h"

#include <gmock/gmock.h>

#include <string>

#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace weir::client {
namespace {

TEST(StatusDetailsTest, AddsReasonFieldAndRetryHint) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  details.add_details()->PackFrom(info);
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("inputs[0]");
  details.add_details()->PackFrom(bad);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_nanos(20'000'000);
  details.add_details()->PackFrom(retry);
  const absl::Status status =
      ToStatus(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full",
                            details.SerializeAsString()));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()),
            "full [reason QUEUE_FULL, field inputs[0], retry after 20ms]");
}

TEST(StatusDetailsTest, LeavesPlainErrorsAlone) {
  EXPECT_TRUE(ToStatus(grpc::Status::OK).ok());
  EXPECT_EQ(std::string(ToStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "no",
                                              "\xff"))
                            .message()),
            "no");
}

}  // namespace
}  // namespace weir::client
