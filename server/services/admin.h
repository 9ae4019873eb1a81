// weir.v1.Admin: draining, the log level. Used by the I/O threads; outlives the
// transport.
#pragma once

#include <functional>
#include <memory>
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

  // Reads --admin-token-file, if there is one; an error names the flag. All
  // pointers outlive the service.
  static absl::StatusOr<std::unique_ptr<AdminService>> Create(
      const ServiceContext* context, Logger* logger, DrainFn drain);

  void Register(MethodTable* table);

 private:
  AdminService(const ServiceContext* context, Logger* logger, DrainFn drain,
               std::string token)
      : context_(context),
        logger_(logger),
        drain_(std::move(drain)),
        token_(std::move(token)) {}

  absl::Status Authorize(const ServerCall& call) const;

  const ServiceContext* const context_;
  Logger* const logger_;
  const DrainFn drain_;
  const std::string token_;  // empty: callers on this machine only
};

// Whether the address of a caller, as ServerCall::Peer gives it, is a unix
// socket or a loopback address.
bool IsLocalPeer(std::string_view peer);

}  // namespace weir
