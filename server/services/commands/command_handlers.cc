#include "server/services/commands/command_handlers.h"

#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/context_commands.h"
#include "server/services/commands/tensor_commands.h"
#include "server/services/commands/timeline_commands.h"
#include "server/services/commands/wait_command.h"
#include "server/services/commands/work_commands.h"
#include "server/services/evaluate_calls.h"

namespace weir {

CommandHandlers::CommandHandlers(ServiceContext* context) {
  Add(v1::Command::kEvaluate, EvaluateHandler(context));
  Add(v1::Command::kTensorPut, TensorPutHandler(context));
  Add(v1::Command::kTensorGet, TensorGetHandler(context));
  AddTensorCommands(context, this);
  AddContextCommands(context, this);
  AddTimelineCommands(context, this);
  AddWorkCommands(context, this);
  Add(v1::Command::kWait, WaitHandler(context));
}

}  // namespace weir
