// The commands for timelines.
#pragma once

#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

void AddTimelineCommands(ServiceContext* context, CommandHandlers* handlers);

}  // namespace weir
