#include "client/cpp/call_failure.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/status_details.h"

namespace weir::client {
namespace {

// gRPC's whole message where the client's clock ended the call.
constexpr char kTooLate[] = "Deadline Exceeded";

absl::Status TooLate(const CallSite& site) {
  const std::string within = absl::FormatDuration(site.timeout);
  return absl::DeadlineExceededError(
      site.connected
          ? absl::StrCat("no reply from ", site.address, " within ", within,
                         ": it may take longer (--timeout), or hang")
          : absl::StrCat("nobody answers at ", site.address, " within ", within,
                         ": is a weir server running there, and does a "
                         "firewall let this machine reach it?"));
}

// Of a name that has no address: the cause alone, without the resolver's words.
absl::Status NoHost(const CallSite& site, absl::string_view message) {
  const size_t cause = message.rfind(": ");
  return absl::UnavailableError(
      absl::StrCat("cannot find the host of ", site.address, ": ",
                   cause == message.npos ? message : message.substr(cause + 2),
                   "; is the name right, and do other names resolve here?"));
}

}  // namespace

absl::Status CallFailure(const grpc::Status& status, const CallSite& site) {
  absl::Status told = WithTlsRemedy(ToStatus(status), site.tls);
  const absl::string_view message = told.message();
  if (absl::IsDeadlineExceeded(told) && message == kTooLate) {
    return TooLate(site);
  }
  if (!absl::IsUnavailable(told)) return told;
  if (absl::StartsWith(message, "DNS resolution failed")) {
    return NoHost(site, message);
  }
  if (!absl::StrContains(message, "failed to connect")) return told;
  std::string remedy;
  if (absl::StrContains(message, "Connection refused") ||
      absl::StrContains(message, "No such file or directory")) {
    remedy = absl::StrCat("nobody listens at ", site.address,
                          ": is the server running there?");
  } else if (absl::StrContains(message, "Permission denied")) {
    remedy = absl::StrCat("this user may not open ", site.address,
                          ": ask the owner of the server's socket");
  } else if (absl::StrContains(message, "http1.x server")) {
    remedy = absl::StrCat(site.address,
                          " speaks HTTP/1 and not gRPC: if it is the server's "
                          "--http, give the address of its --grpc");
  } else {
    return told;
  }
  return absl::UnavailableError(absl::StrCat(remedy, " (", message, ")"));
}

}  // namespace weir::client
