#include "server/services/evaluator.h"

#include "server/services/evaluate_calls.h"
#include "server/services/run_call.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Evaluator";

}  // namespace

void EvaluatorService::Register(MethodTable* table) {
  table->Add(kService, "Evaluate", Traffic::kHeavy, EvaluateHandler(context_));
  table->Add(kService, "Run", Traffic::kHeavy, [this](ServerCall& call) {
    HandleRun(context_, &commands_, call);
  });
}

}  // namespace weir
