#include "server/startup_checks.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/listener.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

absl::Status Fault(absl::string_view flag, const std::string& thing,
                   absl::string_view cause) {
  return absl::FailedPreconditionError(
      absl::StrCat(flag, ": ", thing, ": ", cause));
}

absl::StatusOr<std::unique_ptr<Listener>> TryToListen(
    absl::string_view flag, const std::vector<std::string>& addresses) {
  auto listener = Listener::Open(addresses);
  if (listener.ok()) return listener;
  return absl::Status(listener.status().code(),
                      absl::StrCat(flag, ": ", listener.status().message()));
}

}  // namespace

absl::Status CheckModelRepository(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  const fs::directory_iterator list(path, error);
  if (error) return Fault("--model-repository", path, error.message());
  return absl::OkStatus();
}

absl::Status CheckCacheFolder(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return Fault("--cache-dir", path, error.message());
  std::string trial = path + "/.trial-XXXXXX";
  const int fd = mkstemp(trial.data());
  if (fd < 0) {
    return Fault("--cache-dir", path, std::strerror(errno));  // NOLINT
  }
  close(fd);
  unlink(trial.c_str());
  return absl::OkStatus();
}

absl::Status CheckAddresses(const std::vector<std::string>& grpc,
                            const std::string& http) {
  WEIR_ASSIGN_OR_RETURN(const auto grpc_listener, TryToListen("--grpc", grpc));
  if (http.empty()) return absl::OkStatus();
  return TryToListen("--http", {http}).status();
}

}  // namespace weir
