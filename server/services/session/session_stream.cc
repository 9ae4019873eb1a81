#include "server/services/session/session_stream.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/occupancy.h"
#include "proto/weir/v1/session.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/wire/commands.h"
#include "server/services/session/session.h"
#include "server/services/session/session_limits.h"
#include "server/services/session/session_peer.h"
#include "server/services/space_header.h"

namespace weir {
namespace {

absl::Status ServerEnds() {
  return WithReason(
      absl::UnavailableError("the server ends, and the session's space with "
                             "it; open another one elsewhere"),
      "SERVER_ENDS");
}

class SessionStream final : public SessionPeer {
 public:
  SessionStream(ServiceContext* context, const CommandHandlers* handlers,
                Sessions* sessions, ServerStream* call)
      : SessionPeer(call),
        context_(context),
        handlers_(handlers),
        sessions_(sessions) {}

  static void Begin(ArenaPtr<SessionStream> self) {
    SessionStream* const stream = self.get();
    Sessions* const sessions = stream->sessions_;
    ServerStream& call = stream->call();
    auto space = RequireSpace(*stream->context_, call);
    if (!space.ok()) {
      self.reset();
      return call.Fail(space.status());
    }
    stream->space_ = *std::move(space);
    stream->self_ = std::move(self);
    sessions->AddStream(stream);
    call.OnCancel(
        [](ServerCall&, void* arg) {
          static_cast<SessionStream*>(arg)->End(
              absl::CancelledError("the caller has gone"));
        },
        stream);
    if (stream->ends_) return;
    // Whoever drains has not seen it, perhaps.
    if (sessions->drain_deadline() != 0) return stream->End(ServerEnds());
    stream->Read();
  }

 private:
  // Whatever there is to do. Wherever it returns somebody comes back: a message
  // that is read, an event that is written, a command that is accepted or
  // answered, a work's end, the session's or the server's, or the caller's
  // leaving.
  void Work() override {
    if (ends_) return MayEnd();
    if (session_ != nullptr) {
      if (const absl::Status lost = session_->Lost(this); !lost.ok()) {
        return End(lost);
      }
      drain_deadline_ = sessions_->drain_deadline();
      looks_ = true;
      const bool goes_on = TakeCommands();
      looks_ = false;
      if (goes_on) Schedule();
      SendEvent();
    } else if (sessions_->drain_deadline() != 0) {
      return End(ServerEnds());
    }
    if (drain_deadline_ != 0) {
      if (!writes_ && !session_->busy()) End(ServerEnds());
      return;
    }
    if (message_ != nullptr || reads_) return;
    if (!half_closed_) {
      if (session_->HasRoom()) Read();
    } else if (!writes_ && session_->EndIfDone(this)) {
      finishes_ = true;
      End(absl::OkStatus());
    }
  }

  void Read() {
    reads_ = true;
    call().Read(
        [](ServerStream&, ServerStream::MessageOr message, void* self) {
          static_cast<SessionStream*>(self)->WasRead(std::move(message));
        },
        this);
  }

  void WasRead(ServerStream::MessageOr message) {
    reads_ = false;
    if (ends_) return;
    if (!message.ok()) return End(message.status());
    if (*message == nullptr) {
      half_closed_ = true;
      if (session_ == nullptr) {
        return End(absl::InvalidArgumentError(
            "the stream has no message; the first one opens a session"));
      }
      return Work();
    }
    message_ = *std::move(message);
    if (absl::Status status = ReadMessage(); !status.ok()) return End(status);
    Work();
  }

  absl::Status ReadMessage() {
    request_ = SessionRequestView();
    at_ = 0;
    WEIR_RETURN_IF_ERROR(
        ParseSessionRequest(message_->bytes(), &message_->arena(), &request_));
    if (session_ == nullptr) {
      WEIR_RETURN_IF_ERROR(Open());
    } else if (request_.opens) {
      return InvalidField("open", "the first message alone opens a session");
    } else if (request_.acknowledged > 0) {
      WEIR_RETURN_IF_ERROR(session_->Acknowledge(request_.acknowledged));
    }
    if (request_.commands.empty()) return absl::OkStatus();
    return session_->CheckFirst(request_.first_sequence);
  }

  absl::Status Open() {
    if (!request_.opens) {
      return InvalidField("open", "the first message has to open a session");
    }
    const SessionOpenView& open = request_.open;
    std::shared_ptr<Session> session;
    if (open.resume) {
      WEIR_ASSIGN_OR_RETURN(const auto found, Find(open.session));
      session = std::static_pointer_cast<Session>(found);
      WEIR_ASSIGN_OR_RETURN(
          accepted_,
          session->Attach(this, open.push_completions, request_.acknowledged));
      session_ = std::move(session);
      return absl::OkStatus();
    }
    auto claim = space_->sessions().Take(open.session);
    if (!claim.ok()) return WithField(claim.status(), "open.session");
    WEIR_ASSIGN_OR_RETURN(Account::Share share,
                          space_->account().Take(Holding::kSessions));
    session = std::make_shared<Session>(Session::Options{
        .context = context_,
        .handlers = handlers_,
        .sessions = sessions_,
        .space = space_.shared(),
        .number = open.session,
        .caller = {.peer = call().peer(),
                   .identity = call().identity(),
                   .connection = call().Connection(),
                   .header = std::string(kSpaceHeader),
                   .value = std::string(space_->token().bytes()),
                   .handler = NewHandlerId(),
                   .admission = &context_->admission,
                   .max_reply_bytes =
                       call().max_reply_bytes() > kSessionEventHead
                           ? call().max_reply_bytes() - kSessionEventHead
                           : 0},
        .share = std::move(share)});
    sessions_->Add(session.get(), session);
    WEIR_ASSIGN_OR_RETURN(
        accepted_,
        session->Attach(this, open.push_completions, request_.acknowledged));
    session_ = session;
    // From here on others may resume it, and the space may end it.
    if (!claim->Fill(std::move(session))) return SpaceNotFound(space_->id());
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<SpaceSession>> Find(uint64_t number) const {
    auto found = space_->sessions().Find(number);
    if (!found.ok()) return WithField(found.status(), "open.session");
    return *std::move(found);
  }

  // True if it may go on at once, but others have their turn.
  bool TakeCommands() {
    if (message_ == nullptr) return false;
    const auto commands = request_.commands;
    const size_t end = drain_deadline_ == 0 ? commands.size() : at_;
    for (size_t row = 0; at_ < end; ++row, ++at_) {
      if (row == kCommandsInARow) return true;
      if (!session_->Take(this, request_.first_sequence + at_, commands[at_],
                          message_)) {
        return false;
      }
    }
    message_.reset();
    return false;
  }

  void SendEvent() {
    if (writes_) return;
    ReplyBuffer event;
    v1::SessionEvent head;
    if (!std::exchange(told_opened_, true)) {
      v1::SessionOpened* const opened = head.mutable_opened();
      opened->set_accepted(accepted_);
      v1::SessionWindow* const window = opened->mutable_window();
      window->set_commands(kSessionCommands);
      window->set_command_bytes(kSessionCommandBytes);
      window->set_unsent_bytes(kSessionUnsentBytes);
      window->set_kept_answers(kSessionKeptAnswers);
      window->set_kept_bytes(kSessionKeptBytes);
    }
    if (drain_deadline_ != 0 && !std::exchange(told_drain_, true)) {
      head.mutable_going_away()->set_deadline_unix_ns(drain_deadline_);
    }
    session_->TakeEvent(this, &event, &tickets_);
    event.AppendCopy(head.SerializeAsString());
    if (event.size() == 0) return;
    writes_ = true;
    call().Write(
        std::move(event),
        [](ServerCall&, void* self) {
          static_cast<SessionStream*>(self)->WasWritten();
        },
        this);
  }

  void WasWritten() {
    writes_ = false;
    tickets_.clear();
    if (session_ != nullptr) session_->Sent(this);
    Work();
  }

  // Ends it with this, at the latest when nobody wakes it any more. The last
  // that its caller does.
  void End(absl::Status status) {
    if (std::exchange(ends_, true)) return;
    end_ = std::move(status);
    call().ForgetCancel();
    if (session_ != nullptr) session_->Detach(this);
    sessions_->RemoveStream(this);
    message_.reset();
    MayEnd();
  }

  void MayEnd() {
    if (woken()) return;  // then it works again
    ServerStream& call = this->call();
    const absl::Status end = std::move(end_);
    const bool finishes = finishes_;
    { const ArenaPtr<SessionStream> self = std::move(self_); }
    if (finishes) return call.Finish();
    call.Fail(end);
  }

  ServiceContext* const context_;
  const CommandHandlers* const handlers_;
  Sessions* const sessions_;
  ArenaPtr<SessionStream> self_;
  SpaceUse space_;
  std::shared_ptr<Session> session_;  // null: it is not opened yet
  uint64_t accepted_ = 0;             // when it was

  std::shared_ptr<StreamMessage> message_;  // not all of it is taken
  SessionRequestView request_;              // what it says
  size_t at_ = 0;                           // its next command
  std::vector<Admission::Ticket> tickets_;  // of what is being written

  bool reads_ = false;
  bool writes_ = false;
  bool half_closed_ = false;
  bool told_opened_ = false;
  bool told_drain_ = false;
  int64_t drain_deadline_ = 0;
  bool ends_ = false;
  bool finishes_ = false;  // with OK
  absl::Status end_;
};

}  // namespace

void HandleSession(ServiceContext* context, const CommandHandlers* handlers,
                   Sessions* sessions, ServerStream& call) {
  SessionStream::Begin(MakeInArena<SessionStream>(&call.arena(), context,
                                                  handlers, sessions, &call));
}

}  // namespace weir
