// The commands for streams that callers acquire.
#pragma once

#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

void AddStreamCommands(ServiceContext* context, CommandHandlers* handlers);

}  // namespace weir
