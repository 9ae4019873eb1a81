// weir.v1.Evaluator: evaluations of graphs, ONNX models and served models, by
// themselves and among other commands. Used by the I/O threads; outlives the
// transport.
#pragma once

#include "server/rpc/method_table.h"
#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"
#include "server/services/session/sessions.h"

namespace weir {

class EvaluatorService {
 public:
  explicit EvaluatorService(ServiceContext* context)
      : context_(context), commands_(context) {}
  void Register(MethodTable* table);

  Sessions& sessions() { return sessions_; }

 private:
  ServiceContext* const context_;
  const CommandHandlers commands_;
  Sessions sessions_;
};

}  // namespace weir
