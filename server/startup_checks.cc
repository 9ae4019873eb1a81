#include "server/startup_checks.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/observe/http_server.h"
#include "server/rpc/listener.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

// Of a GPU's driver and libraries, models, gRPC's queues, logs: with room to
// spare.
constexpr size_t kOtherDescriptors = 512;

absl::Status Fault(absl::string_view flag, const std::string& thing,
                   absl::string_view cause) {
  return absl::FailedPreconditionError(
      absl::StrCat(flag, ": ", thing, ": ", cause));
}

absl::Status CacheFault(const std::string& path, int error) {
  absl::Status fault = Fault("--cache-dir", path, std::strerror(error));
  if (error != ENOSPC && error != EDQUOT) return fault;
  return absl::ResourceExhaustedError(fault.message());
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
  if (error) return CacheFault(path, error.value());
  std::string trial = path + "/.trial-XXXXXX";
  const int fd = mkstemp(trial.data());
  if (fd < 0) return CacheFault(path, errno);
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

size_t DescriptorsFor(size_t connections) {
  return connections + HttpServer::Limits().connections + kOtherDescriptors;
}

absl::StatusOr<DescriptorPlan> PlanDescriptors(uint64_t soft_limit,
                                               uint64_t hard_limit,
                                               size_t connections) {
  const uint64_t others = DescriptorsFor(0);
  if (hard_limit <= others) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the hard limit of open files (ulimit -Hn) is ", hard_limit,
        ", which leaves none for connections: raise it to ",
        DescriptorsFor(connections)));
  }
  DescriptorPlan plan;
  plan.connections =
      static_cast<size_t>(std::min<uint64_t>(connections, hard_limit - others));
  plan.soft_limit =
      std::max<uint64_t>(soft_limit, DescriptorsFor(plan.connections));
  return plan;
}

size_t PeerShare(size_t of_peer, size_t wanted, size_t connections) {
  if (connections >= wanted) return of_peer;
  return std::max<size_t>(1, of_peer * connections / wanted);
}

absl::StatusOr<size_t> TakeDescriptors(size_t connections) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
  WEIR_ASSIGN_OR_RETURN(
      const DescriptorPlan plan,
      PlanDescriptors(limit.rlim_cur, limit.rlim_max, connections));
  if (plan.soft_limit == limit.rlim_cur) return plan.connections;
  limit.rlim_cur = plan.soft_limit;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot raise the limit of open files to ",
                     plan.soft_limit, ": ", std::strerror(errno)));
  }
  return plan.connections;
}

}  // namespace weir
