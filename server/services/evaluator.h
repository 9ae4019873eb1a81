// weir.v1.Evaluator: one evaluation of a graph, an ONNX model or a served
// model. Used by the I/O threads; outlives the transport.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

class EvaluatorService {
 public:
  explicit EvaluatorService(ServiceContext* context) : context_(context) {}
  void Register(MethodTable* table);

 private:
  class Call;

  ServiceContext* const context_;
};

}  // namespace weir
