#include "server/rpc/status_mapping.h"

#include <gmock/gmock.h>

#include <string>

#include "client/cpp/status_details.h"
#include "kernels/base/error_info.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"
#include "proto/weir/v1/sync_report.pb.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

absl::Status Busy() {
  absl::Status status = absl::AbortedError("context 5 is busy");
  status = WithReason(std::move(status), "CONTEXT_BUSY", {{"owner", "call 7"}});
  status = WithRetryAfter(std::move(status), absl::Milliseconds(1500));
  status = WithField(std::move(status), "context");
  v1::SyncReport report;
  report.set_stream_id(33);
  status.SetPayload("type.googleapis.com/weir.v1.SyncReport",
                    absl::Cord(report.SerializeAsString()));
  return status;
}

std::string ReasonOf(const grpc::Status& status) {
  return client::DetailsOf(client::ToStatus(status)).reason;
}

TEST(StatusMappingTest, OkIsOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(StatusMappingTest, EveryCodeKeepsItsNumber) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(status.error_message(), "why");
    EXPECT_EQ(static_cast<int>(client::ToStatus(status).code()), code);
  }
}

// What a client without our code sees: google.rpc.Status in the trailer.
TEST(StatusMappingTest, AStockClientReadsTheDetails) {
  const auto transport =
      StartTransport([](ServerCall& call) { call.Fail(Busy()); });
  InferStub stub(Connect(transport->addresses()[0]));
  const grpc::Status status = Infer(stub, "x").status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "context 5 is busy");
  google::rpc::Status rich;
  ASSERT_TRUE(rich.ParseFromString(status.error_details()));
  EXPECT_EQ(rich.code(), 10);
  EXPECT_EQ(rich.message(), "context 5 is busy");
  ASSERT_EQ(rich.details_size(), 4);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(rich.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "CONTEXT_BUSY");
  EXPECT_EQ(info.domain(), "weir");
  EXPECT_EQ(info.metadata().at("owner"), "call 7");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(rich.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(rich.details(2).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "context");
  v1::SyncReport report;
  ASSERT_TRUE(rich.details(3).UnpackTo(&report));
  EXPECT_EQ(report.stream_id(), 33u);
}

TEST(StatusMappingTest, OurClientReadsItWhole) {
  const absl::Status status = client::ToStatus(ToGrpcStatus(Busy()));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(std::string(status.message()), "context 5 is busy");
  const client::ErrorDetails details = client::DetailsOf(status);
  EXPECT_EQ(details.reason, "CONTEXT_BUSY");
  EXPECT_EQ(details.domain, kErrorDomain);
  EXPECT_EQ(details.metadata.at("owner"), "call 7");
  EXPECT_EQ(details.retry_after, absl::Milliseconds(1500));
  EXPECT_EQ(details.field(), "context");
  ASSERT_TRUE(details.report.has_value());
  EXPECT_EQ(details.report->stream_id(), 33u);
}

TEST(StatusMappingTest, ADetailThatDoesNotFitStaysBehind) {
  absl::Status status = absl::InvalidArgumentError("large");
  status = WithReason(std::move(status), "WHY",
                      {{"value", std::string(kMaxStatusDetailBytes, 'x')}});
  status = WithField(std::move(status), "inputs[0]");
  const grpc::Status mapped = ToGrpcStatus(status);
  EXPECT_LE(mapped.error_details().size(), kMaxStatusDetailBytes);
  const auto details = client::DetailsOf(client::ToStatus(mapped));
  EXPECT_EQ(details.reason, "");
  EXPECT_EQ(details.field(), "inputs[0]");
}

// Protobuf refuses strings that are not UTF-8, so a stock client would lose
// every detail.
TEST(StatusMappingTest, WhatACallerSentCannotSpoilTheDetails) {
  absl::Status status = absl::InvalidArgumentError("no input \"\xff\"");
  status = WithReason(std::move(status), "WHY", {{"name", "\xc3"}});
  status = WithField(std::move(status), "inputs[\"\x80\"]");
  const grpc::Status mapped = ToGrpcStatus(status);
  EXPECT_EQ(mapped.error_message(), "no input \"\\xff\"");
  const auto details = client::DetailsOf(client::ToStatus(mapped));
  EXPECT_EQ(details.reason, "WHY");
  EXPECT_EQ(details.metadata.at("name"), "\\xc3");
  EXPECT_EQ(details.field(), "inputs[\"\\x80\"]");
}

TEST(StatusMappingTest, FitsIntoTrailers) {
  const std::string euros = [] {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "\xe2\x82\xac";
    return text;
  }();
  absl::Status status = absl::InternalError(euros);
  status = WithReason(std::move(status), "KEPT");
  status.SetPayload("type.googleapis.com/too.Large",
                    absl::Cord(std::string(5000, 'x')));
  const grpc::Status mapped = ToGrpcStatus(status);
  EXPECT_LE(mapped.error_message().size(), kMaxStatusMessageBytes);
  EXPECT_LE(mapped.error_details().size(), kMaxStatusDetailBytes);
  EXPECT_EQ(ReasonOf(mapped), "KEPT");
  // And travels.
  const auto transport =
      StartTransport([&](ServerCall& call) { call.Fail(status); });
  InferStub stub(Connect(transport->addresses()[0]));
  const grpc::Status received = Infer(stub, "x").status;
  EXPECT_EQ(received.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(received.error_message(), mapped.error_message());
  EXPECT_EQ(ReasonOf(received), "KEPT");
}

}  // namespace
}  // namespace weir
