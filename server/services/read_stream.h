// weir.v1.Evaluator.Read: a kept tensor in pieces, each read from the device
// when the one before it was written to the caller.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

// `context` outlives the handler, and the streams.
MethodHandler ReadHandler(ServiceContext* context);

}  // namespace weir
