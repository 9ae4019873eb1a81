// A command among the several of a call, as its handler sees it: a call of its
// own. Who calls, the deadline, the thread and what is charged are its
// parent's; the message, the arena and the answer its own. Whoever runs it
// gets the answer.
//
// Used on the parent's I/O thread, as ServerCall; at most one of a parent's at
// a time, while nobody else resumes or answers the parent, or asks to be told
// if its caller leaves.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/bytes/byte_view.h"
#include "server/rpc/method_table.h"
#include "server/rpc/reply_buffer.h"
#include "server/rpc/server_call.h"

namespace weir {

class SubCall final : public ServerCall {
 public:
  using DoneFn = void (*)(void* arg);

  // The parent outlives it.
  explicit SubCall(ServerCall* parent);

  // Hands `request`, which stays, to the handler. `done(arg)` runs once, when
  // that has answered, perhaps inside: then the sub-call may run another
  // command once this and `done` have returned. The answer may have at most
  // `reply_bytes`, and the parent's bound of them.
  void Run(const MethodHandler& handler, const ByteView& request,
           size_t reply_bytes, DoneFn done, void* arg);

  // Of the last command, until the next: what it failed with, or else its
  // reply.
  const absl::Status& status() const { return status_; }
  ReplyBuffer TakeReply() { return std::move(reply_); }

  void Resume(ResumeFn fn, void* arg) override;
  std::string Connection() const override { return parent_->Connection(); }
  std::optional<std::string_view> Header(std::string_view name) const override {
    return parent_->Header(name);
  }
  void Reply(ReplyBuffer reply) override;
  void Fail(const absl::Status& error) override;
  // No command streams its replies.
  void Write(ReplyBuffer message, ResumeFn written, void* arg) override;

 private:
  std::string FindIdentity() const override { return parent_->identity(); }
  void Answer(absl::Status status);

  ServerCall* const parent_;
  DoneFn done_ = nullptr;
  void* done_arg_ = nullptr;
  ResumeFn resume_ = nullptr;
  void* resume_arg_ = nullptr;
  absl::Status status_;
  ReplyBuffer reply_;
};

}  // namespace weir
