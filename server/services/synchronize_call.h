// weir.v1.Admin.Synchronize: answers when all that was launched by now is done,
// by the points of the streams, so that nobody is held up by it.
#pragma once

#include "server/rpc/server_call.h"
#include "server/services/service_context.h"

namespace weir {

// `context` outlives the call, which may be made.
void HandleSynchronize(const ServiceContext* context, ServerCall& call);

}  // namespace weir
