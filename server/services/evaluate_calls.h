// What answers with a weir.v1.EvaluateResponse: an evaluation that is asked
// for, and the two that keep and read a tensor of a space. Each handler's
// `context` outlives it.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

MethodHandler EvaluateHandler(ServiceContext* context);   // EvaluateRequest
MethodHandler TensorPutHandler(ServiceContext* context);  // TensorPut
MethodHandler TensorGetHandler(ServiceContext* context);  // TensorGet

}  // namespace weir
