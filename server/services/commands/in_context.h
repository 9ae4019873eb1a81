// Handlers of commands that are done at once inside a context of the call's
// space, which is refused (CONTEXT_BUSY) while another handler is in it: the
// commands of a session are one handler.
#pragma once

#include "absl/status/status.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/eval_context.h"
#include "server/services/commands/in_space.h"
#include "server/services/service_context.h"
#include "server/services/space_evaluation.h"
#include "server/spaces/space.h"

namespace weir {

// Where such a command is carried out.
struct InsideContext {
  Space& space;
  const KeptContext& kept;
  Activation& activation;
};

// A handler of handle(const InsideContext&, const Request&, Response*), for a
// request with `context`.
template <typename Request, typename Response, typename Handle>
MethodHandler InContext(const ServiceContext* context, Handle handle) {
  return InSpace<Request, Response>(
      context,
      [handle](ServerCall& call, Space& space, const Request& request,
               Response* response) -> absl::Status {
        const auto kept = space.contexts().Find(request.context());
        if (!kept.ok()) return WithField(kept.status(), "context");
        WEIR_ASSIGN_OR_RETURN(Activation inside,
                              (*kept)->context->Enter(HandlerOf(call)));
        return handle(InsideContext{space, **kept, inside}, request, response);
      });
}

}  // namespace weir
