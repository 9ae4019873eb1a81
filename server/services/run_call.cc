#include "server/services/run_call.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/sub_call.h"
#include "server/rpc/wire/commands.h"
#include "server/rpc/wire/wire_writer.h"
#include "server/services/failure_proto.h"
#include "server/services/long_step.h"
#include "server/services/space_header.h"

namespace weir {
namespace {

// What a result takes at least: an error of which the code alone is told, or
// the head of another.
constexpr size_t kLeastResultBytes = 32;

// Fields of the messages.
constexpr uint32_t kResponseResults = 1;
constexpr uint32_t kResultError = 1;

// One call of Run. Lives in its arena until the answer.
class RunCall {
 public:
  RunCall(ServiceContext* context, const CommandHandlers* commands,
          ServerCall& call)
      : context_(context), handlers_(commands), call_(call), command_(&call) {}

  static void Begin(ArenaPtr<RunCall> self) {
    RunCall* const run = self.get();
    run->self_ = std::move(self);
    RunStep<&RunCall::Read, &RunCall::WasRead>(
        run->call_, run->context_->long_steps, ReadingBytes(run->call_), run);
  }

 private:
  absl::Status Read() {
    WEIR_ASSIGN_OR_RETURN(space_, RequireSpace(*context_, call_));
    return ParseRunRequest(call_.request(), &call_.arena(), &request_);
  }

  void WasRead(absl::Status status) {
    if (!status.ok()) return Fail(status);
    GoOn();
  }

  // Runs commands until one is not done at once.
  void GoOn() {
    for (size_t row = 0; at_ < request_.commands.size(); ++row) {
      const absl::Status wanted =
          no_room_.ok() ? call_.StillWanted(NowNanos()) : no_room_;
      if (!wanted.ok()) return Fail(wanted);
      if (row == kCommandsInARow) return GoOnLater();
      inside_ = true;
      was_done_ = false;
      RunOne(request_.commands[at_]);
      inside_ = false;
      if (!was_done_) return;
    }
    if (!no_room_.ok()) return Fail(no_room_);
    Answer();
  }

  void GoOnLater() {
    call_.Resume(
        [](ServerCall&, void* self) { static_cast<RunCall*>(self)->GoOn(); },
        this);
  }

  void RunOne(const WireCommand& command) {
    const MethodHandler* const handler = handlers_->Find(command.number);
    if (handler == nullptr) {
      return WasDone(NoSuchCommand(absl::StrCat("commands[", at_, "].command"),
                                   command.number));
    }
    command_.Run(
        *handler, command.message, ReplyRoom(),
        [](void* self) {
          auto* const run = static_cast<RunCall*>(self);
          run->WasDone(run->command_.status());
        },
        this);
  }

  // For the result of command `at_`: what is left beside the least that those
  // after it take.
  size_t ReplyRoom() const {
    const size_t most = call_.max_reply_bytes();
    const size_t taken =
        reply_.size() + kLeastResultBytes * (request_.commands.size() - at_);
    return most - std::min(most, taken);
  }

  // Command `at_`.
  void WasDone(const absl::Status& status) {
    if (status.ok()) {
      AppendResult(request_.commands[at_].number, command_.TakeReply());
    } else {
      AppendError(status);
    }
    ++at_;
    was_done_ = true;
    if (!inside_) GoOn();
  }

  // An error is much larger than a command that has it.
  void AppendError(const absl::Status& status) {
    v1::Failure failure = ToFailure(status);
    if (failure.ByteSizeLong() > ReplyRoom()) {
      failure.Clear();
      failure.set_code(status.raw_code());
    }
    const std::string error = failure.SerializeAsString();
    if (absl::Status room = call_.Charge(error.size()); !room.ok()) {
      no_room_ = std::move(room);
      return;
    }
    ReplyBuffer bytes;
    bytes.AppendCopy(error);
    AppendResult(kResultError, std::move(bytes));
  }

  void AppendResult(uint32_t number, ReplyBuffer result) {
    const size_t size = BytesFieldSize(number, result.size());
    const size_t head = BytesFieldSize(kResponseResults, size) - result.size();
    WireWriter writer(reply_.AppendUninitialized(head));
    writer.BeginBytes(kResponseResults, size);
    writer.BeginBytes(number, result.size());
    reply_.Append(std::move(result));
  }

  void Answer() {
    ServerCall& call = call_;
    ReplyBuffer reply = std::move(reply_);
    { const ArenaPtr<RunCall> self = std::move(self_); }
    call.Reply(std::move(reply));
  }

  void Fail(const absl::Status& error) {
    ServerCall& call = call_;
    const absl::Status kept = error;
    { const ArenaPtr<RunCall> self = std::move(self_); }
    call.Fail(kept);
  }

  ServiceContext* const context_;
  const CommandHandlers* const handlers_;
  ServerCall& call_;
  ArenaPtr<RunCall> self_;
  SpaceUse space_;
  RunRequestView request_;
  size_t at_ = 0;
  bool inside_ = false;    // in RunOne, from GoOn
  bool was_done_ = false;  // the command that GoOn has run last
  absl::Status no_room_;   // for the reply
  SubCall command_;
  ReplyBuffer reply_;
};

}  // namespace

void HandleRun(ServiceContext* context, const CommandHandlers* commands,
               ServerCall& call) {
  RunCall::Begin(MakeInArena<RunCall>(&call.arena(), context, commands, call));
}

}  // namespace weir
