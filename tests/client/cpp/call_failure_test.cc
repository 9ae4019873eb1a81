#include "client/cpp/call_failure.h"

#include <gmock/gmock.h>

#include <string>

#include "client/cpp/status_details.h"
#include "proto/google/rpc/error_details.pb.h"
#include "proto/google/rpc/status.pb.h"

namespace weir::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const TlsOptions kPlain;

absl::Status Of(grpc::StatusCode code, const std::string& message,
                bool connected = false, const std::string& details = "") {
  return CallFailure(grpc::Status(code, message, details),
                     {.address = "host:1",
                      .timeout = absl::Milliseconds(1500),
                      .connected = connected,
                      .tls = kPlain});
}

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

TEST(CallFailureTest, ThatOfAConnectionNamesAddressAndRemedy) {
  const std::string failed =
      "failed to connect to all addresses; last error: UNKNOWN: ipv4:1.2.3.4: ";
  const struct {
    std::string message;
    const char* said;
  } cases[] = {
      {failed + "Failed to connect to remote host: Connection refused",
       "nobody listens at host:1: is the server running there? ("},
      {failed + "No such file or directory", "nobody listens at host:1: "},
      {failed + "Permission denied", "this user may not open host:1: "},
      {failed + "Trying to connect an http1.x server",
       "host:1 speaks HTTP/1 and not gRPC: "}};
  for (const auto& c : cases) {
    const absl::Status told = Of(grpc::StatusCode::UNAVAILABLE, c.message);
    EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Text(told).rfind(c.said, 0), 0u) << told;
    EXPECT_THAT(Text(told), HasSubstr(c.message));
  }
}

TEST(CallFailureTest, AHostThatIsUnknownIsToldWithoutTheResolversWords) {
  const absl::Status told =
      Of(grpc::StatusCode::UNAVAILABLE,
         "DNS resolution failed for host:1: C-ares status is not ARES_SUCCESS "
         "qtype=AAAA name=host is_balancer=0: Domain name not found");
  EXPECT_EQ(Text(told),
            "cannot find the host of host:1: Domain name not found; is the "
            "name right, and do other names resolve here?");
}

TEST(CallFailureTest, TheClientsOwnDeadlineNamesAddressAndTime) {
  const absl::Status silent =
      Of(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  EXPECT_EQ(silent.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Text(silent),
              HasSubstr("nobody answers at host:1 within 1.5s: "));
  EXPECT_THAT(Text(silent), Not(HasSubstr("--timeout")));
  const absl::Status slow = Of(grpc::StatusCode::DEADLINE_EXCEEDED,
                               "Deadline Exceeded", /*connected=*/true);
  EXPECT_THAT(Text(slow), HasSubstr("no reply from host:1 within 1.5s: "));
  EXPECT_THAT(Text(slow), HasSubstr("--timeout"));
}

TEST(CallFailureTest, WhatAServerSaysStaysAsItIs) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("COMPILE_WAIT_TOO_LONG");
  details.add_details()->PackFrom(info);
  for (const auto code :
       {grpc::StatusCode::DEADLINE_EXCEEDED, grpc::StatusCode::UNAVAILABLE,
        grpc::StatusCode::NOT_FOUND}) {
    const absl::Status told =
        Of(code, "a file: No such file or directory, Connection refused",
           /*connected=*/true, details.SerializeAsString());
    EXPECT_EQ(told.code(), static_cast<absl::StatusCode>(code));
    EXPECT_EQ(Text(told),
              "a file: No such file or directory, Connection refused");
    EXPECT_EQ(DetailsOf(told).reason, "COMPILE_WAIT_TOO_LONG");
  }
}

}  // namespace
}  // namespace weir::client
