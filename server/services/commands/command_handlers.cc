#include "server/services/commands/command_handlers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "proto/weir/v1/command.pb.h"
#include "server/services/commands/context_commands.h"
#include "server/services/commands/flush_command.h"
#include "server/services/commands/tensor_commands.h"
#include "server/services/commands/tensor_copy.h"
#include "server/services/commands/timeline_commands.h"
#include "server/services/commands/wait_command.h"
#include "server/services/commands/work_commands.h"
#include "server/services/evaluate_calls.h"

namespace weir {

absl::Status NoSuchCommand(std::string_view field, uint32_t number) {
  return InvalidField(
      std::string(field),
      number == 0
          ? std::string("no command is set")
          : absl::StrCat("this server knows no command number ", number));
}

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
  Add(v1::Command::kWait, WaitHandler(context));
}

}  // namespace weir
