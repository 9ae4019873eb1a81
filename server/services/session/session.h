// A session of a space: what was taken of its commands, those that run, their
// answers, and the stream that has it, if one does. It outlives its streams:
// without one it waits for a while to be resumed.
//
// Owned by its space's table, by its stream, and by commands that run.
// Thread-safe: streams and commands may be on several I/O threads. No lock is
// held while a command runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "server/rpc/command_call.h"
#include "server/rpc/wire/commands.h"
#include "server/services/commands/command_handlers.h"
#include "server/services/service_context.h"
#include "server/services/session/session_answers.h"
#include "server/services/session/session_peer.h"
#include "server/spaces/account.h"
#include "server/spaces/kept_work.h"
#include "server/spaces/space.h"
#include "server/spaces/space_session.h"

namespace weir {

class Sessions;

class Session final : public SpaceSession,
                      private CommandCall::Client,
                      public std::enable_shared_from_this<Session> {
 public:
  struct Options {
    ServiceContext* context = nullptr;          // both outlive it
    const CommandHandlers* handlers = nullptr;  // the same
    Sessions* sessions = nullptr;               // the same
    std::shared_ptr<Space> space;
    uint64_t number = 0;
    CommandCaller caller;
    Account::Share share;
  };
  explicit Session(Options options);
  ~Session() override;

  // -- From the thread of a stream, `peer`.

  // The stream has the session from here on, and another one that had it is
  // told; what is acknowledged is forgotten before. Returns the highest number
  // that was taken. Errors as Acknowledge, and NOT_FOUND, reason
  // SESSION_NOT_FOUND, if it is over.
  absl::StatusOr<uint64_t> Attach(SessionPeer* peer, bool push,
                                  uint64_t acknowledged);
  // The stream ends: for a while the session may be resumed.
  void Detach(SessionPeer* peer);
  // True if nothing is left to be done or told: then it is over.
  bool EndIfDone(SessionPeer* peer);

  // OK while `peer` has it; otherwise with what its stream is to end.
  absl::Status Lost(SessionPeer* peer) const;

  // INVALID_ARGUMENT, with the field, if one of them was not answered.
  absl::Status Acknowledge(uint64_t sequence);
  // INVALID_ARGUMENT, with the field, unless commands may begin with this one.
  absl::Status CheckFirst(uint64_t sequence) const;
  // False if `command` is not to be taken now; then its stream is scheduled or
  // woken when it may, unless that is lost. Its place in the order is as
  // CheckFirst has it.
  bool Take(SessionPeer* peer, uint64_t sequence, const WireCommand& command,
            const std::shared_ptr<StreamMessage>& message);
  // Whether there is room for more.
  bool HasRoom() const;

  // Appends to `event` what is to be sent of answers and of works that ended,
  // as much as an event may have; `tickets` count it. Until Sent it is on its
  // way.
  void TakeEvent(SessionPeer* peer, ReplyBuffer* event,
                 std::vector<Admission::Ticket>* tickets);
  void Sent(SessionPeer* peer);
  // Whether commands run, or something is to be sent.
  bool busy() const;

  // -- From any thread.

  void SpaceClosed() override;
  // The server ends: without a stream it is over.
  void EndUnlessAttached();

 private:
  struct Completion {
    uint64_t number = 0;
    std::shared_ptr<KeptWork> work;
  };

  absl::Status AcknowledgeLocked(uint64_t sequence) WEIR_REQUIRES(mu_);
  bool HasRoomLocked() const WEIR_REQUIRES(mu_);
  // A command was accepted or answered on `thread`, the caller's.
  void TellPeer(const IoThread* thread) WEIR_REQUIRES(mu_);
  // It is over. What goes with it goes outside the lock.
  SessionAnswers End(absl::Status why) WEIR_REQUIRES(mu_);
  // Outside the lock, once it is over.
  void Forget();
  void LingerEnds(uint64_t attachments);
  void WatchWork(uint64_t number);
  void WorkEnded(uint64_t number, std::shared_ptr<KeptWork> work);
  // `command` was answered on `thread`, the caller's.
  void Finish(CommandCall& command, const IoThread* thread,
              const absl::Status& status, ReplyBuffer reply);

  // CommandCall::Client.
  void Accepted(CommandCall& command) override;
  void Answered(CommandCall& command, absl::Status status,
                ReplyBuffer reply) override;
  void Released(CommandCall& command) override;
  // Back among those that are free, or ended.
  std::unique_ptr<CommandCall> Recycle(CommandCall& command) WEIR_REQUIRES(mu_);

  const Options options_;

  mutable Mutex mu_;
  SessionPeer* peer_ WEIR_GUARDED_BY(mu_) = nullptr;
  uint64_t attachments_ WEIR_GUARDED_BY(mu_) = 0;  // so far
  TimerQueue::TimerId linger_ WEIR_GUARDED_BY(mu_) = 0;
  absl::Status end_ WEIR_GUARDED_BY(mu_);  // not OK: it is over
  bool push_ WEIR_GUARDED_BY(mu_) = false;

  uint64_t taken_ WEIR_GUARDED_BY(mu_) = 0;
  bool accepting_ WEIR_GUARDED_BY(mu_) = false;  // the last that was taken
  absl::flat_hash_set<CommandCall*> running_ WEIR_GUARDED_BY(mu_);
  size_t running_bytes_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<CommandCall>> free_ WEIR_GUARDED_BY(mu_);

  SessionAnswers answers_ WEIR_GUARDED_BY(mu_);
  size_t sending_bytes_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<Completion> completions_ WEIR_GUARDED_BY(mu_);
  size_t awaited_works_ WEIR_GUARDED_BY(mu_) = 0;
};

}  // namespace weir
