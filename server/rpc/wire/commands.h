// The messages of weir.v1 that carry commands (RunRequest, SessionRequest,
// TensorPut) without a protobuf object: tensor data, and commands themselves,
// stay in the received slices. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/wire/wire_tensor.h"

namespace weir {

// A weir.v1.Command, not looked into.
struct WireCommand {
  uint32_t number = 0;  // of the field that is set; 0: none
  ByteView message;     // its value
};

struct RunRequestView {
  static constexpr size_t kMaxCommands = 1024;
  std::span<const WireCommand> commands;
};

struct SessionOpenView {
  uint64_t session = 0;
  bool resume = false;
  bool push_completions = false;
};

struct SessionRequestView {
  static constexpr size_t kMaxCommands = 1024;
  bool opens = false;
  SessionOpenView open;
  uint64_t first_sequence = 0;
  std::span<const WireCommand> commands;
  uint64_t acknowledged = 0;
};

struct TensorPutView {
  uint64_t tensor = 0;
  WireTensor value;  // without a name
  uint64_t context = 0;
  std::string_view device;
  int32_t mode = 0;  // its number on the wire, not checked
  uint64_t work = 0;
  bool into_existing = false;
  int32_t report = 0;  // as mode
};

// INVALID_ARGUMENT for what is no such message, or has too many commands. What
// protobuf would merge (two values of a tensor) is refused, and so is a command
// that is two.
absl::Status ParseRunRequest(const ByteView& bytes, CallArena* arena,
                             RunRequestView* request);
// Takes no longer than so many commands do, whatever else is in the message:
// where that has more of other fields than a few, it is refused.
absl::Status ParseSessionRequest(const ByteView& bytes, CallArena* arena,
                                 SessionRequestView* request);
absl::Status ParseTensorPut(const ByteView& bytes, CallArena* arena,
                            TensorPutView* put);

}  // namespace weir
