// A command of a session, as its handler sees it: a call of its own, beside
// others of the same caller, that does not end with the stream it came in. Who
// calls is its session's to say; the message, the arena, what is charged and
// the answer are its own. Objects are used again by their session.
//
// Used on the I/O thread where it runs, as ServerCall; but for Cancel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/rpc/io_thread.h"
#include "server/rpc/method_table.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/server_call.h"
#include "server/rpc/stream_message.h"
#include "server/scheduling/admission.h"

namespace weir {

// Who sends the commands of a session, as ServerCall has it.
struct CommandCaller {
  std::string peer;
  std::string identity;
  std::string connection;
  // The one header that its commands have.
  std::string header;
  std::string value;
  uint64_t handler = 0;
  Admission* admission = nullptr;
  size_t max_reply_bytes = 0;
};

class CommandCall final : public ServerCall {
 public:
  // Whoever runs commands: told on the command's I/O thread, perhaps inside
  // Run.
  class Client {
   public:
    // The handler says that others need not wait for it: Launched.
    virtual void Accepted(CommandCall& command) = 0;
    // The last that is told of a command, unless Released follows. The client
    // has the call again, unless a Cancel is on its way: then Released gives it
    // back.
    virtual void Answered(CommandCall& command, absl::Status status,
                          ReplyBuffer reply) = 0;
    virtual void Released(CommandCall& command) = 0;

   protected:
    ~Client() = default;
  };

  // Both outlive it.
  CommandCall(const CommandCaller* caller, Client* client);

  // What the client knows of it, and the call does not look at.
  struct Tag {
    uint64_t sequence = 0;
    uint32_t number = 0;  // of the command
    size_t bytes = 0;
    bool push = false;
    std::shared_ptr<void> owner;
  };
  Tag tag;

  // Where it runs, or ran last.
  IoThread* thread() const { return io_; }
  // Where it will: before others know of it, who may cancel it before it runs.
  void set_thread(IoThread* io) { io_ = io; }

  // Hands `request`, which lies in `message`, to the handler.
  // RESOURCE_EXHAUSTED if there is no room for it: then nobody is told. On its
  // thread.
  absl::Status Run(const MethodHandler& handler,
                   std::shared_ptr<const StreamMessage> message,
                   const ByteView& request);

  // As if its caller had left. Any thread, while the client knows it not to be
  // answered; at most once.
  void Cancel();
  // The client's to guard.
  bool cancel_posted() const { return cancel_posted_; }

  // What it counts for, and the caller's from here on. In Answered.
  Admission::Ticket TakeTicket() { return std::move(ticket_); }

  uint64_t handler() const override { return caller_->handler; }
  bool has_place() const override { return false; }
  void Launched() override;
  void Resume(ResumeFn fn, void* arg) override;
  std::string Connection() const override { return caller_->connection; }
  std::optional<std::string_view> Header(std::string_view name) const override;
  void Reply(ReplyBuffer reply) override;
  void Fail(const absl::Status& error) override;
  // No command streams its replies.
  void Write(ReplyBuffer message, ResumeFn written, void* arg) override;

 private:
  struct Node : InboxNode {
    CommandCall* call = nullptr;
  };

  std::string FindIdentity() const override { return caller_->identity; }
  void Answer(absl::Status status, ReplyBuffer reply);
  void OnCancelled();

  const CommandCaller* const caller_;
  Client* const client_;
  IoThread* io_ = nullptr;
  std::shared_ptr<const StreamMessage> message_;
  bool answered_ = true;
  bool cancel_posted_ = false;
  ResumeFn resume_fn_ = nullptr;
  void* resume_arg_ = nullptr;
  Node resume_;
  Node cancel_;
};

}  // namespace weir
