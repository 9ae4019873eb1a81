// weir.v1.Wait: answers when all that it names is there.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

// `context` outlives the handler.
MethodHandler WaitHandler(ServiceContext* context);

}  // namespace weir
