// The commands that make contexts and give them up.
#pragma once

#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

void AddContextCommands(ServiceContext* context, CommandHandlers* handlers);

}  // namespace weir
