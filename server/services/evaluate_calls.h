// What answers with a weir.v1.EvaluateResponse: an evaluation that is asked
// for, and those that keep, read, copy and fill a tensor of a space. Each
// handler's `context` outlives it.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

MethodHandler EvaluateHandler(ServiceContext* context);   // EvaluateRequest
MethodHandler TensorPutHandler(ServiceContext* context);  // TensorPut
MethodHandler TensorGetHandler(ServiceContext* context);  // TensorGet
// TensorCopy, within a device.
MethodHandler TensorCopyHandler(ServiceContext* context);
// TensorPut, of elements that come from another device.
MethodHandler StagedPutHandler(ServiceContext* context);
MethodHandler TensorFillHandler(ServiceContext* context);  // TensorFill

}  // namespace weir
