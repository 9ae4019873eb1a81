// The commands for kept tensors that have no evaluation of their own.
#pragma once

#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

void AddTensorCommands(ServiceContext* context, CommandHandlers* handlers);

}  // namespace weir
