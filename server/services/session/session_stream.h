// weir.v1.Evaluator.Session: the stream of one session, for as long as that is
// its. Reads one message at a time, while the session has room for what it
// brings; has its commands taken in their order; writes one event at a time,
// with all that is there by then.
//
// Belongs to its call, whose I/O thread uses it, and ends with it.
#pragma once

#include "server/rpc/server_stream.h"
#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"
#include "server/services/session/sessions.h"

namespace weir {

// All three outlive the call.
void HandleSession(ServiceContext* context, const CommandHandlers* handlers,
                   Sessions* sessions, ServerStream& call);

}  // namespace weir
