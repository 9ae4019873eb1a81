// weir.v1.Evaluator.Watch: the states of works as they change, as fast as the
// caller reads.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

// `context` outlives the handler, and the streams.
MethodHandler WatchHandler(ServiceContext* context);

}  // namespace weir
