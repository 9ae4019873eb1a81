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
void AddCounted(MethodTable* table, Metrics*, RpcMethod,
                std::string_view service, std::string_view name,
                Handler handler) {
  AddUnary<Request, Response>(
      table, service, name,
      [handler = std::move(handler)](ServerCall&, const Request& request,
                                     Response* response) -> absl::Status {
        return handler(request, response);
      });
}

}  // namespace weir
