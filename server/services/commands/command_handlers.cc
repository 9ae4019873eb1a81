#include "server/services/commands/command_handlers.h"

#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/context_commands.h"
#include "server/services/commands/stream_commands.h"
#include "server/services/commands/tensor_commands.h"
#include "server/services/commands/tensor_copy.h"
#include "server/services/commands/timeline_commands.h"
#include "server/services/commands/wait_command.h"
#include "server/services/commands/work_commands.h"
#include "server/services/evaluate_calls.h"

namespace weir {

CommandHandlers::CommandHandlers(ServiceContext* context) {
  Add(v1::Command::kEvaluate, EvaluateHandler(context));
  Add(v1::Command::kTensorPut, TensorPutHandler(context));
  Add(v1::Command::kTensorGet, TensorGetHandler(context));
  Add(v1::Command::kTensorCopy, TensorCopyCommandHandler(context));
  Add(v1::Command::kTensorFill, TensorFillHandler(context));
  AddTensorCommands(context, this);
  AddContextCommands(context, this);
  AddFlushCommand(context, this);
  AddTimelineCommands(context, this);
  AddWorkCommands(context, this);
  AddStreamCommands(context, this);
  Add(v1::Command::kWait, WaitHandler(context));
}

}  // namespace weir
