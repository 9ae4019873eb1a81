// Small methods with their calls counted. See AddUnary.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "server/observe/metrics.h"
#include "server/rpc/typed_method.h"

namespace weir {

// absl::Status handler(const Request&, Response*).
template <typename Request, typename Response, typename Handler>
void AddCounted(MethodTable* table, Metrics* metrics, RpcMethod counted_as,
                std::string_view service, std::string_view name,
                Handler handler) {
  AddUnary<Request, Response>(
      table, service, name,
      [metrics, counted_as, handler = std::move(handler)](
          ServerCall& call, const Request& request,
          Response* response) -> absl::Status {
        absl::Status status = handler(request, response);
        metrics->Record(counted_as, status.code(),
                        NowNanos() - call.received());
        return status;
      });
}

}  // namespace weir
