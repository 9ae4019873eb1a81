#include "server/services/evaluator.h"

#include <string>

#include "proto/weir/v1/evaluator.pb.h"
#include "server/services/evaluate_calls.h"
#include "server/services/read_stream.h"
#include "server/services/run_call.h"
#include "server/services/session/session_stream.h"
#include "server/services/watch_stream.h"

namespace weir {

void EvaluatorService::Register(MethodTable* table) {
  // Reflection tells of the files alone that something refers to.
  const std::string& service =
      v1::RunRequest::descriptor()->file()->service(0)->full_name();
  table->Add(service, "Evaluate", Traffic::kHeavy, EvaluateHandler(context_));
  table->Add(service, "Run", Traffic::kHeavy, [this](ServerCall& call) {
    HandleRun(context_, &commands_, call);
  });
  table->AddBidi(service, "Session", [this](ServerStream& call) {
    HandleSession(context_, &commands_, &sessions_, call);
  });
  table->AddStream(service, "Read", Traffic::kHeavy, ReadHandler(context_));
  table->AddStream(service, "Watch", Traffic::kRare, WatchHandler(context_));
}

}  // namespace weir
