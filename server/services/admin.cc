#include "server/services/admin.h"

#include <algorithm>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/admin.pb.h"
#include "server/rpc/typed_method.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Admin";
constexpr size_t kMaxTokenBytes = 4096;

absl::Status TokenError(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("--admin-token-file: ", path, " ", what));
}

// Takes as long for a wrong token as for one that is nearly right.
bool SameToken(std::string_view given, std::string_view token) {
  int different = given.size() == token.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    different |= static_cast<unsigned char>(given[i]) ^
                 static_cast<unsigned char>(token[i % token.size()]);
  }
  return different == 0;
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

// "unix:PATH", "ipv4:127.0.0.1:5123", "ipv6:[::1]:5123"; gRPC may write the
// brackets as %5B and %5D.
bool IsLocalPeer(std::string_view peer) {
  const std::string plain =
      absl::StrReplaceAll(AbslView(peer), {{"%5B", "["}, {"%5D", "]"}});
  return absl::StartsWith(plain, "unix:") ||
         absl::StartsWith(plain, "unix-abstract:") ||
         absl::StartsWith(plain, "ipv4:127.") ||
         absl::StartsWith(plain, "ipv6:[::1]:") ||
         absl::StartsWith(plain, "ipv6:[::ffff:127.");
}

absl::StatusOr<std::string> ReadAdminToken(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::string token(kMaxTokenBytes + 1, '\0');
  file.read(token.data(), static_cast<std::streamsize>(token.size()));
  if (!file.eof()) {
    return TokenError(
        path, file.fail() ? "cannot be read" : "is longer than 4096 bytes");
  }
  token.resize(static_cast<size_t>(file.gcount()));
  while (!token.empty() &&
         absl::ascii_isspace(static_cast<unsigned char>(token.back()))) {
    token.pop_back();
  }
  if (token.empty()) return TokenError(path, "holds no token");
  if (!std::all_of(token.begin(), token.end(),
                   [](char c) { return c > ' ' && c < 0x7f; })) {
    return TokenError(path,
                      "holds more than one word of visible ASCII characters");
  }
  return token;
}

absl::Status AdminService::Authorize(const ServerCall& call) const {
  if (!token_.empty()) {
    constexpr std::string_view kScheme = "Bearer ";
    const std::string_view header = call.Header("authorization").value_or("");
    if (header.substr(0, kScheme.size()) == kScheme &&
        SameToken(header.substr(kScheme.size()), token_)) {
      return absl::OkStatus();
    }
    return WithReason(
        absl::UnauthenticatedError(
            "this call needs the header 'authorization: Bearer TOKEN' with the "
            "token of the server's --admin-token-file (weir: --token-file)"),
        "ADMIN_TOKEN");
  }
  const std::string peer = call.Peer();
  if (IsLocalPeer(peer)) return absl::OkStatus();
  return WithReason(
      absl::PermissionDeniedError(absl::StrCat(
          "Admin is for callers on the server's machine, and ", peer,
          " is not one; start the server with --admin-token-file to let others "
          "in")),
      "ADMIN_NOT_LOCAL");
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
              "level", absl::StrCat(request.level(), " is not a log level"));
        }
        response->set_previous(ToProto(logger_->level()));
        logger_->set_level(*level);
        return absl::OkStatus();
      });
}

}  // namespace weir
