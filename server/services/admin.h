// weir.v1.Admin: draining, the log level. Taken over unix sockets, whose files
// say who may, and over TCP with the token: a loopback address proves nothing,
// because proxies on the machine dial from it too. Used by the I/O threads;
// outlives the transport.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "server/observe/logger.h"
#include "server/rpc/method_table.h"
#include "server/services/admin_token.h"
#include "server/services/service_context.h"

namespace weir {

class AdminService {
 public:
  // Has the process drained and ended; false if that had begun before. Called
  // on I/O threads: must not wait.
  using DrainFn = std::function<bool()>;

  // The pointers outlive the service. Without a token (null) callers must come
  // by a unix socket.
  AdminService(const ServiceContext* context, Logger* logger, DrainFn drain,
               const AdminToken* token)
      : context_(context),
        logger_(logger),
        drain_(std::move(drain)),
        token_(token) {}

  void Register(MethodTable* table);

 private:
  absl::Status Authorize(const ServerCall& call) const;

  const ServiceContext* const context_;
  Logger* const logger_;
  const DrainFn drain_;
  const AdminToken* const token_;
};

}  // namespace weir
