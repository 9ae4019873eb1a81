#include "server/services/session/session.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/session.pb.h"
#include "server/services/session/session_limits.h"
#include "server/services/session/sessions.h"
#include "server/services/work_status.h"

namespace weir {
namespace {

// Of commands that are not used, for the next ones.
constexpr size_t kFreeCommands = 32;

// What a work that has ended counts for until it is told: its failure may be
// long.
constexpr size_t kCompletionBytes = size_t{4} << 10;

absl::Status Resumed(uint64_t number) {
  return WithReason(absl::AbortedError(absl::StrCat(
                        "session ", number, " was resumed on another stream")),
                    "SESSION_RESUMED");
}

absl::Status Over(uint64_t number) {
  return WithReason(
      absl::NotFoundError(absl::StrCat(
          "the space has no session ", number,
          "; it ended, nobody resumed it in time, or it never was")),
      "SESSION_NOT_FOUND");
}

}  // namespace

Session::Session(Options options) : options_(std::move(options)) {}

Session::~Session() { options_.sessions->Remove(this); }

absl::StatusOr<uint64_t> Session::Attach(SessionPeer* peer, bool push,
                                         uint64_t acknowledged) {
  TimerQueue& timers = options_.context->engines.main().timers();
  MutexLock lock(&mu_);
  if (!end_.ok()) return Over(options_.number);
  WEIR_RETURN_IF_ERROR(AcknowledgeLocked(acknowledged));
  ++attachments_;
  if (linger_ != 0) timers.Cancel(std::exchange(linger_, 0));
  if (SessionPeer* const other = std::exchange(peer_, peer)) other->Wake();
  push_ = push;
  sending_bytes_ = 0;
  answers_.SendAll();
  return taken_;
}

void Session::Detach(SessionPeer* peer) {
  ServiceContext& context = *options_.context;
  SessionAnswers dropped;
  {
    MutexLock lock(&mu_);
    if (peer_ != peer) return;
    peer_ = nullptr;
    completions_.clear();
    if (!end_.ok()) return;
    const Nanos linger = absl::ToInt64Nanoseconds(context.options.linger);
    if (linger > 0 && options_.sessions->drain_deadline() == 0) {
      linger_ = context.engines.main().timers().Add(
          NowNanos() + linger,
          [weak = weak_from_this(), attachments = attachments_] {
            if (const auto self = weak.lock()) self->LingerEnds(attachments);
          });
      return;
    }
    dropped = End(Over(options_.number));
  }
  Forget();
}

void Session::LingerEnds(uint64_t attachments) {
  SessionAnswers dropped;
  {
    MutexLock lock(&mu_);
    if (attachments != attachments_ || peer_ != nullptr || !end_.ok()) return;
    dropped = End(Over(options_.number));
  }
  Forget();
}

void Session::SpaceClosed() {
  SessionAnswers dropped;
  MutexLock lock(&mu_);
  if (end_.ok()) dropped = End(SpaceNotFound(options_.space->id()));
}

void Session::EndUnlessAttached() {
  SessionAnswers dropped;
  {
    MutexLock lock(&mu_);
    if (peer_ != nullptr || !end_.ok()) return;
    dropped = End(Over(options_.number));
  }
  Forget();
}

bool Session::EndIfDone(SessionPeer* peer) {
  SessionAnswers dropped;
  {
    MutexLock lock(&mu_);
    if (peer_ != peer || !end_.ok() || !running_.empty() || !answers_.empty() ||
        sending_bytes_ > 0 || !completions_.empty() || awaited_works_ > 0) {
      return false;
    }
    peer_ = nullptr;
    dropped = End(Over(options_.number));
  }
  Forget();
  return true;
}

SessionAnswers Session::End(absl::Status why) {
  end_ = std::move(why);
  if (linger_ != 0) {
    options_.context->engines.main().timers().Cancel(std::exchange(linger_, 0));
  }
  for (CommandCall* const command : running_) command->Cancel();
  completions_.clear();
  if (peer_ != nullptr) peer_->Wake();
  return std::exchange(answers_, SessionAnswers());
}

void Session::Forget() {
  options_.space->sessions().RemoveIf(options_.number, this);
  options_.sessions->Remove(this);
}

absl::Status Session::Lost(SessionPeer* peer) const {
  MutexLock lock(&mu_);
  if (!end_.ok()) return end_;
  return peer_ == peer ? absl::OkStatus() : Resumed(options_.number);
}

absl::Status Session::Acknowledge(uint64_t sequence) {
  MutexLock lock(&mu_);
  return AcknowledgeLocked(sequence);
}

absl::Status Session::AcknowledgeLocked(uint64_t sequence) {
  if (sequence > taken_) {
    return InvalidField("acknowledged",
                        absl::StrCat("the session has taken ", taken_,
                                     " commands, and not ", sequence));
  }
  return answers_.Acknowledge(sequence);
}

absl::Status Session::CheckFirst(uint64_t sequence) const {
  MutexLock lock(&mu_);
  if (sequence > 0 && sequence <= taken_ + 1) return absl::OkStatus();
  return InvalidField(
      "first_sequence",
      absl::StrCat(sequence, " is not between 1 and ", taken_ + 1,
                   ", the number of the next command of the session"));
}

bool Session::HasRoomLocked() const {
  return running_.size() < kSessionCommands &&
         answers_.unsent() + running_.size() < kSessionUnsentAnswers &&
         answers_.unsent_bytes() + sending_bytes_ +
                 completions_.size() * kCompletionBytes <
             kSessionUnsentBytes;
}

bool Session::HasRoom() const {
  MutexLock lock(&mu_);
  return HasRoomLocked();
}

bool Session::Take(SessionPeer* peer, uint64_t sequence,
                   const WireCommand& command,
                   const std::shared_ptr<StreamMessage>& message) {
  const size_t bytes = command.message.size();
  CommandCall* call = nullptr;
  {
    MutexLock lock(&mu_);
    if (peer_ != peer || !end_.ok() || !HasRoomLocked()) return false;
    if (sequence <= taken_) {
      answers_.Repeat(sequence);
      return true;
    }
    if (accepting_) return false;
    if (running_bytes_ > 0 && running_bytes_ + bytes > kSessionCommandBytes) {
      return false;
    }
    taken_ = sequence;
    accepting_ = true;
    answers_.Expect(sequence);
    std::unique_ptr<CommandCall> own;
    if (free_.empty()) {
      own = std::make_unique<CommandCall>(
          &options_.caller, static_cast<CommandCall::Client*>(this));
    } else {
      own = std::move(free_.back());
      free_.pop_back();
    }
    call = own.release();
    call->set_thread(peer->thread());
    running_.insert(call);
    running_bytes_ += bytes;
    call->tag = {.sequence = sequence,
                 .number = command.number,
                 .bytes = bytes,
                 .push = push_,
                 .owner = shared_from_this()};
  }
  const MethodHandler* const handler = options_.handlers->Find(command.number);
  const absl::Status run = handler == nullptr
                               ? NoSuchCommand("command", command.number)
                               : call->Run(*handler, message, command.message);
  if (!run.ok()) Finish(*call, peer->thread(), run, ReplyBuffer());
  return true;
}

void Session::TellPeer(const IoThread* thread) {
  if (peer_ == nullptr) return;
  if (peer_->thread() == thread) {
    peer_->Schedule();
  } else {
    peer_->Wake();
  }
}

void Session::Accepted(CommandCall& command) {
  {
    MutexLock lock(&mu_);
    if (command.tag.sequence == taken_) accepting_ = false;
    TellPeer(command.thread());
  }
  if (command.tag.push && command.work_number() != 0) {
    WatchWork(command.work_number());
  }
}

void Session::Answered(CommandCall& command, absl::Status status,
                       ReplyBuffer reply) {
  Finish(command, command.thread(), status, std::move(reply));
}

// With the last that keeps it the session ends in here.
void Session::Finish(CommandCall& command, const IoThread* thread,
                     const absl::Status& status, ReplyBuffer reply) {
  const std::shared_ptr<void> self = std::move(command.tag.owner);
  ReplyBuffer result = MakeSessionResult(
      command.tag.sequence, command.tag.number, status, std::move(reply));
  Admission::Ticket ticket = command.TakeTicket();
  std::unique_ptr<CommandCall> surplus;
  {
    MutexLock lock(&mu_);
    running_.erase(&command);
    running_bytes_ -= command.tag.bytes;
    if (command.tag.sequence == taken_) accepting_ = false;
    if (end_.ok()) {
      answers_.Add(command.tag.sequence, std::move(result), std::move(ticket));
    }
    TellPeer(thread);
    if (command.cancel_posted()) {
      command.tag.owner = self;  // until it is released
    } else {
      surplus = Recycle(command);
    }
  }
}

void Session::Released(CommandCall& command) {
  const std::shared_ptr<void> self = std::move(command.tag.owner);
  std::unique_ptr<CommandCall> surplus;
  MutexLock lock(&mu_);
  surplus = Recycle(command);
}

std::unique_ptr<CommandCall> Session::Recycle(CommandCall& command) {
  std::unique_ptr<CommandCall> own(&command);
  if (end_.ok() && free_.size() < kFreeCommands) {
    free_.push_back(std::move(own));
  }
  return own;
}

void Session::WatchWork(uint64_t number) {
  auto kept = options_.space->works().Find(number);
  if (!kept.ok()) return;
  {
    MutexLock lock(&mu_);
    ++awaited_works_;
  }
  // The session that is told of its end does not want it.
  (*kept)->OnEnded(
      [weak = weak_from_this(), number, work = std::weak_ptr(*kept)] {
        const auto self = weak.lock();
        if (self != nullptr) self->WorkEnded(number, work.lock());
      });
}

void Session::WorkEnded(uint64_t number, std::shared_ptr<KeptWork> work) {
  MutexLock lock(&mu_);
  --awaited_works_;
  if (!end_.ok() || peer_ == nullptr) return;
  completions_.push_back({number, std::move(work)});
  peer_->Wake();
}

void Session::TakeEvent(SessionPeer* peer, ReplyBuffer* event,
                        std::vector<Admission::Ticket>* tickets) {
  std::vector<Completion> ended;
  {
    MutexLock lock(&mu_);
    if (peer_ != peer || !end_.ok()) return;
    answers_.TakeEvent(event, tickets);
    const size_t room =
        event->size() < kSessionEventBytes
            ? (kSessionEventBytes - event->size()) / kCompletionBytes
            : 0;
    const auto from = completions_.begin();
    const auto to =
        from + static_cast<std::ptrdiff_t>(std::min(completions_.size(), room));
    ended.assign(std::make_move_iterator(from), std::make_move_iterator(to));
    completions_.erase(from, to);
    sending_bytes_ = event->held() + ended.size() * kCompletionBytes;
  }
  if (ended.empty()) return;
  v1::SessionEvent message;
  for (const Completion& each : ended) {
    v1::WorkCompletion* const completion = message.add_completions();
    completion->set_work(each.number);
    *completion->mutable_status() =
        StatusOf(*options_.context, *each.work, /*full=*/false);
  }
  event->AppendCopy(message.SerializeAsString());
}

void Session::Sent(SessionPeer* peer) {
  MutexLock lock(&mu_);
  if (peer_ == peer) sending_bytes_ = 0;
}

bool Session::busy() const {
  MutexLock lock(&mu_);
  return !running_.empty() || !answers_.empty() || sending_bytes_ > 0 ||
         !completions_.empty();
}

}  // namespace weir
