// weir.v1.Evaluator.Run: the commands of one call, one after the other.
#pragma once

#include "server/rpc/server_call.h"
#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

// Both outlive the call.
void HandleRun(ServiceContext* context, const CommandHandlers* commands,
               ServerCall& call);

}  // namespace weir
