// The command that has a context run what waits in it, and what is told of
// that, as a context that is closed tells it.
#pragma once

#include "kernels/eval/eval_context.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"

namespace weir {

void AddFlushCommand(ServiceContext* context, CommandHandlers* handlers);

// Of a context of a space, whose works have the callers' numbers as tags.
void FillFlushed(const FlushResult& result, v1::ContextFlushed* flushed);

}  // namespace weir
