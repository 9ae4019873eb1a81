#include "server/services/admin.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/admin.pb.h"
#include "server/rpc/typed_method.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Admin";
// "unix:PATH" or "unix:"; gRPC has it from the socket, not from the caller.
bool CameByUnixSocket(const ServerCall& call) {
  return absl::StartsWith(call.Connection(), "unix:");
}

std::optional<LogLevel> FromProto(v1::LogLevel level) {
  switch (level) {
    case v1::LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case v1::LOG_LEVEL_INFO:
      return LogLevel::kInfo;
    case v1::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return std::nullopt;
  }
}

v1::LogLevel ToProto(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return v1::LOG_LEVEL_DEBUG;
    case LogLevel::kInfo:
      return v1::LOG_LEVEL_INFO;
    case LogLevel::kWarning:
      return v1::LOG_LEVEL_WARNING;
    case LogLevel::kError:
      return v1::LOG_LEVEL_ERROR;
  }
  return v1::LOG_LEVEL_UNSPECIFIED;
}

}  // namespace

absl::Status AdminService::Authorize(const ServerCall& call) const {
  if (CameByUnixSocket(call)) return absl::OkStatus();
  if (token_ == nullptr) {
    return WithReason(
        absl::PermissionDeniedError(
            "this server takes Admin calls over unix sockets only: call it on "
            "one (unix:PATH among the addresses of --grpc), or start it with "
            "--admin-token-file and send the token"),
        "ADMIN_OVER_TCP");
  }
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view header = call.Header("authorization").value_or("");
  const bool given = header.size() > kScheme.size() &&
                     header.substr(0, kScheme.size()) == kScheme;
  if (given && token_->Matches(header.substr(kScheme.size()))) {
    return absl::OkStatus();
  }
  return WithReason(
      absl::UnauthenticatedError(absl::StrCat(
          given ? "the token is another than the server's: " : "",
          "over TCP this call needs the header 'authorization: Bearer TOKEN' "
          "with the token of the server's --admin-token-file (weir: "
          "--token-file)")),
      "ADMIN_TOKEN");
}

void AdminService::Register(MethodTable* table) {
  AddUnary<v1::DrainRequest, v1::DrainResponse>(
      table, kService, "Drain",
      [this](ServerCall& call, const v1::DrainRequest&,
             v1::DrainResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        const ServerOptions& options = context_->options;
        response->set_started(drain_());
        response->set_delay_ns(absl::ToInt64Nanoseconds(options.drain_delay));
        response->set_limit_ns(absl::ToInt64Nanoseconds(options.drain_delay +
                                                        options.drain_timeout));
        response->set_requests_in_flight(
            static_cast<uint64_t>(context_->admission.requests()));
        return absl::OkStatus();
      });
  AddUnary<v1::SetLogLevelRequest, v1::SetLogLevelResponse>(
      table, kService, "SetLogLevel",
      [this](ServerCall& call, const v1::SetLogLevelRequest& request,
             v1::SetLogLevelResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        const std::optional<LogLevel> level = FromProto(request.level());
        if (!level.has_value()) {
          return InvalidField(
              "level",
              absl::StrCat(request.level(),
                           " is not a log level; there are LOG_LEVEL_DEBUG, "
                           "LOG_LEVEL_INFO, LOG_LEVEL_WARNING and "
                           "LOG_LEVEL_ERROR"));
        }
        response->set_previous(ToProto(logger_->level()));
        logger_->set_level(*level);
        return absl::OkStatus();
      });
}

}  // namespace weir
