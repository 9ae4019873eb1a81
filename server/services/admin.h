// weir.v1.Admin: draining, the log level. Used by the I/O threads; outlives the
// transport.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/observe/logger.h"
#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

class AdminService {
 public:
  // Has the process drained and ended; false if that had begun before. Called
  // on I/O threads: must not wait.
  using DrainFn = std::function<bool()>;

  // Both pointers outlive the service. `token` is that of ReadAdminToken.
  AdminService(const ServiceContext* context, Logger* logger, DrainFn drain,
               std::string token)
      : context_(context),
        logger_(logger),
        drain_(std::move(drain)),
        token_(std::move(token)) {}

  void Register(MethodTable* table);

 private:
  absl::Status Authorize(const ServerCall& call) const;

  const ServiceContext* const context_;
  Logger* const logger_;
  const DrainFn drain_;
  const std::string token_;  // empty: callers on this machine only
};

// The token in --admin-token-file, or "" if `path` is. An error names the flag.
absl::StatusOr<std::string> ReadAdminToken(const std::string& path);

// Whether the address of a caller, as ServerCall::Peer gives it, is a unix
// socket or a loopback address.
bool IsLocalPeer(std::string_view peer);

}  // namespace weir
