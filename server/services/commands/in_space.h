// Handlers of commands that are done at once, in the call's space.
#pragma once

#include <type_traits>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "server/rpc/typed_method.h"
#include "server/services/service_context.h"
#include "server/services/space_header.h"
#include "server/spaces/space.h"

namespace weir {

// A handler of handle(Space&, const Request&, Response*), which may leave out
// the last where that is empty, or have the call before all of them.
template <typename Request, typename Response, typename Handle>
MethodHandler InSpace(const ServiceContext* context, Handle handle) {
  return UnaryHandler<Request, Response>(
      [context, handle](ServerCall& call, const Request& request,
                        Response* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(CheckSmallCommand(call));
        WEIR_ASSIGN_OR_RETURN(const SpaceUse space,
                              RequireSpace(*context, call));
        if constexpr (std::is_invocable_v<Handle, Space&, const Request&>) {
          return handle(*space, request);
        } else if constexpr (std::is_invocable_v<Handle, ServerCall&, Space&,
                                                 const Request&, Response*>) {
          return handle(call, *space, request, response);
        } else {
          return handle(*space, request, response);
        }
      });
}

}  // namespace weir
