#include "client/cpp/status_details.h"

#include <gmock/gmock.h>

#include <string>

#include "client/cpp/tls.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace weir::client {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

void AddFieldViolation(const std::string& field, const std::string& why,
                       google::rpc::Status* status) {
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field(field);
  bad.mutable_field_violations(0)->set_description(why);
  status->add_details()->PackFrom(bad);
}

google::rpc::Status AllDetails() {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  info.set_domain("weir");
  (*info.mutable_metadata())["limit"] = "7";
  details.add_details()->PackFrom(info);
  AddFieldViolation("inputs[0]", "too long", &details);
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  retry.mutable_retry_delay()->set_nanos(20'000'000);
  details.add_details()->PackFrom(retry);
  v1::SyncReport report;
  report.set_state(v1::WORK_STATE_ERROR);
  report.set_stream_id(33);
  details.add_details()->PackFrom(report);
  return details;
}

absl::Status Received(const google::rpc::Status& details) {
  return ToStatus(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full",
                               details.SerializeAsString()));
}

TEST(StatusDetailsTest, ProgramsReadEveryDetail) {
  const absl::Status status = Received(AllDetails());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(std::string(status.message()), "full") << "nothing is put into it";
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "QUEUE_FULL");
  EXPECT_EQ(details.domain, "weir");
  EXPECT_THAT(details.metadata, ElementsAre(Pair("limit", "7")));
  EXPECT_EQ(details.retry_after, absl::Milliseconds(1020));
  ASSERT_EQ(details.field_violations.size(), 1u);
  EXPECT_EQ(details.field(), "inputs[0]");
  EXPECT_EQ(details.field_violations[0].description, "too long");
  ASSERT_TRUE(details.report.has_value());
  EXPECT_EQ(details.report->state(), v1::WORK_STATE_ERROR);
  EXPECT_EQ(details.report->stream_id(), 33u);
}

TEST(StatusDetailsTest, PeopleReadThemInBrackets) {
  EXPECT_EQ(ErrorText(Received(AllDetails())),
            "RESOURCE_EXHAUSTED: full [reason QUEUE_FULL, field inputs[0], "
            "retry after 1.02s]");
  EXPECT_EQ(ErrorText(absl::NotFoundError("no")), "NOT_FOUND: no");
}

TEST(StatusDetailsTest, TwoDetailsOfATypeAreBothThere) {
  google::rpc::Status details;
  AddFieldViolation("a", "", &details);
  AddFieldViolation("b", "", &details);
  const ErrorDetails read = DetailsOf(Received(details));
  ASSERT_EQ(read.field_violations.size(), 2u);
  EXPECT_EQ(read.field_violations[1].field, "b");
}

TEST(StatusDetailsTest, DetailsOfOtherTypesAreKept) {
  google::rpc::Status details;
  details.add_details()->set_type_url("type.googleapis.com/not.Known");
  details.mutable_details(0)->set_value("bytes");
  const absl::Status status = Received(details);
  EXPECT_EQ(status.GetPayload("type.googleapis.com/not.Known"), "bytes");
  EXPECT_EQ(ErrorText(status), "RESOURCE_EXHAUSTED: full");
}

TEST(StatusDetailsTest, LeavesPlainAndBrokenErrorsAlone) {
  EXPECT_TRUE(ToStatus(grpc::Status::OK).ok());
  for (const char* broken : {"", "\xff"}) {
    const absl::Status status =
        ToStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "no", broken));
    EXPECT_EQ(std::string(status.message()), "no");
    const ErrorDetails details = DetailsOf(status);
    EXPECT_EQ(details.reason, "");
    EXPECT_EQ(details.field(), "");
    EXPECT_FALSE(details.retry_after.has_value());
    EXPECT_FALSE(details.report.has_value());
  }
  google::rpc::Status details = AllDetails();
  for (auto& detail : *details.mutable_details()) detail.set_value("\xff");
  EXPECT_EQ(ErrorText(Received(details)), "RESOURCE_EXHAUSTED: full");
}

TEST(StatusDetailsTest, ARemedyForTlsKeepsThem) {
  google::rpc::Status details = AllDetails();
  const absl::Status status =
      WithTlsRemedy(ToStatus(grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                          "certificate verify failed",
                                          details.SerializeAsString())),
                    TlsOptions());
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("--tls-ca"));
  EXPECT_EQ(DetailsOf(status).reason, "QUEUE_FULL");
}

TEST(TlsFilesTest, AFileThatCannotBeReadIsToldWithTheCause) {
  const auto told = [](const std::string& ca) {
    TlsFiles files;
    files.ca = ca;
    return std::string(ReadTlsFiles(files).status().message());
  };
  EXPECT_EQ(told("/no/such/file"),
            "--tls-ca: /no/such/file: No such file or directory");
  EXPECT_EQ(told("/"), "--tls-ca: /: Is a directory");
  EXPECT_EQ(told("/dev/null"),
            "--tls-ca: /dev/null: no PEM block of a CERTIFICATE in it");
}

// A part of a call tells what a call does.
TEST(StatusDetailsTest, PartsOfACallTellTheSame) {
  v1::Failure failure;
  failure.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  failure.set_message("too many");
  failure.set_reason("SPACE_QUOTA");
  (*failure.mutable_metadata())["what"] = "tensors";
  failure.set_field("outputs[0].tensor");
  failure.set_retry_after_ns(1'500'000'000);
  failure.mutable_report()->set_stream_id(7);
  const absl::Status status = ToStatus(failure);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const ErrorDetails details = DetailsOf(status);
  EXPECT_EQ(details.reason, "SPACE_QUOTA");
  EXPECT_EQ(details.domain, "weir");
  EXPECT_EQ(details.metadata.at("what"), "tensors");
  EXPECT_EQ(details.field(), "outputs[0].tensor");
  EXPECT_EQ(details.retry_after, absl::Milliseconds(1500));
  ASSERT_TRUE(details.report.has_value());
  EXPECT_EQ(details.report->stream_id(), 7u);

  v1::Failure bare;
  bare.set_code(static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(ToStatus(bare), absl::NotFoundError(""));
}

}  // namespace
}  // namespace weir::client
