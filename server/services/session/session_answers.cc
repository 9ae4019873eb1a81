#include "server/services/session/session_answers.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "server/rpc/wire/wire_writer.h"
#include "server/services/failure_proto.h"
#include "server/services/session/session_limits.h"

namespace weir {
namespace {

// Fields of the messages.
constexpr uint32_t kEventResults = 2;
constexpr uint32_t kResultSequence = 1;
constexpr uint32_t kResultResult = 2;
constexpr uint32_t kResultError = 1;

// Up to here a result is copied rather than sent where it is: gRPC takes more
// time for a piece than it takes to copy it.
constexpr size_t kCopiedBytes = size_t{2} << 10;

ReplyBuffer Flat(const ReplyBuffer& buffer) {
  ReplyBuffer flat;
  if (buffer.size() > 0) buffer.CopyTo(flat.AppendUninitialized(buffer.size()));
  return flat;
}

absl::Status Forgotten(uint64_t sequence) {
  return WithReason(
      absl::DataLossError(absl::StrCat(
          "command ", sequence,
          " was done, and its answer is not kept any more: acknowledge answers "
          "in time, and ask again for none that you acknowledged")),
      "ANSWER_FORGOTTEN");
}

}  // namespace

ReplyBuffer MakeSessionResult(uint64_t sequence, uint32_t number,
                              const absl::Status& status, ReplyBuffer reply) {
  if (!status.ok()) {
    number = kResultError;
    reply = ReplyBuffer();
    reply.AppendCopy(ToFailure(status).SerializeAsString());
  }
  const size_t size = reply.size();
  const size_t result = BytesFieldSize(number, size);
  const size_t entry = VarintFieldSize(kResultSequence, sequence) +
                       BytesFieldSize(kResultResult, result);
  const size_t all = BytesFieldSize(kEventResults, entry);
  const bool copies = all <= kCopiedBytes;
  ReplyBuffer made;
  WireWriter writer(made.AppendUninitialized(copies ? all : all - size));
  writer.BeginBytes(kEventResults, entry);
  writer.VarintField(kResultSequence, sequence);
  writer.BeginBytes(kResultResult, result);
  writer.BeginBytes(number, size);
  if (copies) {
    reply.CopyTo(writer.position());
  } else {
    made.Append(std::move(reply));
  }
  return made;
}

void SessionAnswers::Queue(uint64_t sequence, Answer& answer) {
  answer.state = State::kUnsent;
  unsent_bytes_ += answer.result.held();
  unsent_.push_back({sequence, {}});
}

void SessionAnswers::Add(uint64_t sequence, ReplyBuffer result,
                         Admission::Ticket ticket) {
  Answer& answer = answers_[sequence];
  answer.result = std::move(result);
  answer.ticket = std::move(ticket);
  Queue(sequence, answer);
}

void SessionAnswers::Repeat(uint64_t sequence) {
  const auto at = answers_.find(sequence);
  if (at == answers_.end()) {
    ReplyBuffer lost = MakeSessionResult(sequence, 0, Forgotten(sequence), {});
    unsent_bytes_ += lost.held();
    unsent_.push_back({0, std::move(lost)});
  } else if (at->second.state == State::kSent) {
    kept_bytes_ -= at->second.result.size();
    std::erase(kept_, sequence);
    Queue(sequence, at->second);
  }
}

absl::Status SessionAnswers::Acknowledge(uint64_t sequence) {
  const auto end = answers_.upper_bound(sequence);
  for (auto at = answers_.begin(); at != end; ++at) {
    if (at->second.state != State::kExpected) continue;
    return InvalidField(
        "acknowledged",
        absl::StrCat("command ", at->first, " is not answered yet, and ",
                     sequence, " is not before it"));
  }
  while (answers_.begin() != end) {
    const auto at = answers_.begin();
    const ReplyBuffer& result = at->second.result;
    if (at->second.state == State::kUnsent) {
      unsent_bytes_ -= result.held();
    } else {
      kept_bytes_ -= result.size();
    }
    answers_.erase(at);
  }
  std::erase_if(unsent_, [&](const Unsent& unsent) {
    return unsent.sequence != 0 && unsent.sequence <= sequence;
  });
  std::erase_if(kept_, [&](uint64_t kept) { return kept <= sequence; });
  return absl::OkStatus();
}

void SessionAnswers::SendAll() {
  unsent_.clear();
  kept_.clear();
  unsent_bytes_ = kept_bytes_ = 0;
  for (auto& [sequence, answer] : answers_) {
    if (answer.state != State::kExpected) Queue(sequence, answer);
  }
}

void SessionAnswers::TakeEvent(ReplyBuffer* event,
                               std::vector<Admission::Ticket>* tickets) {
  // Small ones, one after the other, become one piece.
  std::vector<ReplyBuffer> small;
  size_t small_bytes = 0;
  const auto append_small = [&] {
    if (small.empty()) return;
    char* out = event->AppendUninitialized(small_bytes);
    for (const ReplyBuffer& each : small) {
      each.CopyTo(out);
      out += each.size();
    }
    small.clear();
    small_bytes = 0;
  };
  while (!unsent_.empty()) {
    Unsent& next = unsent_.front();
    Answer* const answer =
        next.sequence == 0 ? nullptr : &answers_.find(next.sequence)->second;
    ReplyBuffer& result = answer == nullptr ? next.lost : answer->result;
    const size_t size = result.size();
    const size_t before = event->size() + small_bytes;
    if (before > 0 && before + size > kSessionEventBytes) break;
    unsent_bytes_ -= result.held();
    ReplyBuffer sent = std::move(result);
    if (answer != nullptr) {
      if (answer->ticket.held()) tickets->push_back(std::move(answer->ticket));
      if (size <= kSessionKeptBytes) {
        answer->result = Flat(sent);
        Keep(next.sequence, *answer);
      } else {
        // Who resumes without it is told so.
        answer->result =
            MakeSessionResult(next.sequence, 0, Forgotten(next.sequence), {});
        Keep(next.sequence, *answer);
      }
    }
    if (size <= kCopiedBytes) {
      small_bytes += size;
      small.push_back(std::move(sent));
    } else {
      append_small();
      event->Append(std::move(sent));
    }
    unsent_.pop_front();
  }
  append_small();
  ForgetOldest();
}

void SessionAnswers::Keep(uint64_t sequence, Answer& answer) {
  answer.state = State::kSent;
  kept_bytes_ += answer.result.size();
  kept_.push_back(sequence);
}

void SessionAnswers::ForgetOldest() {
  while (kept_.size() > kSessionKeptAnswers ||
         kept_bytes_ > kSessionKeptBytes) {
    const auto at = answers_.find(kept_.front());
    kept_.pop_front();
    if (at == answers_.end() || at->second.state != State::kSent) continue;
    kept_bytes_ -= at->second.result.size();
    answers_.erase(at);
  }
}

}  // namespace weir
