#include "server/rpc/wire/commands.h"

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_fields.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

// Fields that are no command.
constexpr uint32_t kFirstCommand = 2;

void ReadCommand(WireReader& reader, WireCommand* command) {
  while (reader.NextField()) {
    if (reader.number() < kFirstCommand) {
      reader.Skip();
    } else if (command->number != 0) {
      reader.Fail("a command is set twice");
    } else {
      command->number = reader.number();
      command->message = reader.Bytes();
    }
  }
}

}  // namespace

absl::Status ParseRunRequest(const ByteView& bytes, CallArena* arena,
                             RunRequestView* request) {
  WireReader reader(bytes, arena);
  ArenaList<WireCommand> commands(arena);
  while (reader.NextField()) {
    if (reader.number() != 1) {
      reader.Skip();
    } else if (WireCommand* const command =
                   commands.Add(RunRequestView::kMaxCommands)) {
      reader.Message("commands", commands.size() - 1,
                     [&](WireReader&) { ReadCommand(reader, command); });
    } else {
      reader.FailTooMany("commands", RunRequestView::kMaxCommands);
    }
  }
  request->commands = commands.span();
  return reader.status("RunRequest");
}

absl::Status ParseTensorPut(const ByteView& bytes, CallArena* arena,
                            TensorPutView* put) {
  WireReader reader(bytes, arena);
  bool has_value = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        put->tensor = reader.Varint();
        break;
      case 2:
        if (has_value) {
          reader.Fail("a tensor has two values");
          break;
        }
        has_value = true;
        reader.Message("value", [&](WireReader&) {
          ReadTensorValue(reader, arena, &put->value);
        });
        break;
      case 3:
        put->context = reader.Varint();
        break;
      case 4:
        put->device = reader.Name("device");
        break;
      case 5:
        put->mode = reader.Int32();
        break;
      default:
        reader.Skip();
    }
  }
  return reader.status("TensorPut");
}

}  // namespace weir
