// The commands that ask about works, and stop them.
#pragma once

#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

void AddWorkCommands(ServiceContext* context, CommandHandlers* handlers);

}  // namespace weir
