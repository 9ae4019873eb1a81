// weir.v1.TensorCopy: within a device an evaluation there; to another device a
// read, and then a put there of what was read, which stays where it was read
// to.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

// `context` outlives the handler.
MethodHandler TensorCopyCommandHandler(ServiceContext* context);

}  // namespace weir
