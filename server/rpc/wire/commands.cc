#include "server/rpc/wire/commands.h"

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_fields.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

// Fields that are no command.
constexpr uint32_t kFirstCommand = 2;

// Fields of a message that nobody knows, where reading it is not to take long.
constexpr int kMaxStrangeFields = 16;

void ReadCommand(WireReader& reader, WireCommand* command) {
  int strange = 0;
  while (reader.NextField()) {
    if (reader.number() < kFirstCommand) {
      reader.Skip();
      if (++strange > kMaxStrangeFields) {
        reader.Fail("a command has many fields that are none");
      }
    } else if (command->number != 0) {
      reader.Fail("a command is set twice");
    } else {
      command->number = reader.number();
      command->message = reader.Bytes();
    }
  }
}

void ReadOpen(WireReader& reader, SessionOpenView* open) {
  int strange = 0;
  while (reader.NextField()) {
    if (reader.number() == 1) {
      open->session = reader.Varint();
    } else if (reader.number() == 2) {
      open->resume = reader.Bool();
    } else if (reader.number() == 3) {
      open->push_completions = reader.Bool();
    } else {
      reader.Skip();
    }
    if (++strange > kMaxStrangeFields) {
      reader.Fail("it has a field twice, or many that are none");
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

absl::Status ParseSessionRequest(const ByteView& bytes, CallArena* arena,
                                 SessionRequestView* request) {
  WireReader reader(bytes, arena);
  ArenaList<WireCommand> commands(arena);
  int strange = 0;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        if (request->opens) {
          reader.Fail("a session is opened twice");
          break;
        }
        request->opens = true;
        reader.Message("open",
                       [&](WireReader&) { ReadOpen(reader, &request->open); });
        break;
      case 3:
        if (WireCommand* const command =
                commands.Add(SessionRequestView::kMaxCommands)) {
          reader.Message("commands", commands.size() - 1,
                         [&](WireReader&) { ReadCommand(reader, command); });
        } else {
          reader.FailTooMany("commands", SessionRequestView::kMaxCommands);
        }
        break;
      default:
        if (++strange > kMaxStrangeFields) {
          reader.Fail("it has a number twice, or many fields that are none");
        } else if (reader.number() == 2) {
          request->first_sequence = reader.Varint();
        } else if (reader.number() == 4) {
          request->acknowledged = reader.Varint();
        } else {
          reader.Skip();
        }
    }
  }
  request->commands = commands.span();
  return reader.status("SessionRequest");
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
      case 6:
        put->work = reader.Varint();
        break;
      case 7:
        put->into_existing = reader.Bool();
        break;
      case 8:
        put->report = reader.Int32();
        break;
      default:
        reader.Skip();
    }
  }
  return reader.status("TensorPut");
}

}  // namespace weir
