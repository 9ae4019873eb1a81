// The answers of a session's commands: those that are to come, to be sent, and
// kept for a caller who asks again. Each is a field of weir.v1.SessionEvent, as
// it is sent. For one thread at a time: the session's lock guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/reply_buffer.h"
#include "server/scheduling/admission.h"

namespace weir {

// `SessionEvent.results` for one command: its CommandResult has field `number`
// with the reply, or the error.
ReplyBuffer MakeSessionResult(uint64_t sequence, uint32_t number,
                              const absl::Status& status, ReplyBuffer reply);

class SessionAnswers {
 public:
  // A command with this number, larger than any before, is taken.
  void Expect(uint64_t sequence) { answers_.try_emplace(sequence); }
  // Its answer is there, to be sent. `ticket` counts it until it is.
  void Add(uint64_t sequence, ReplyBuffer result, Admission::Ticket ticket);
  // It is wanted again: it will be sent once more, or when it is there; one
  // that is not kept any more is answered with DATA_LOSS.
  void Repeat(uint64_t sequence);
  // INVALID_ARGUMENT, with the field, if one of them is not there yet;
  // otherwise all up to this one are forgotten.
  absl::Status Acknowledge(uint64_t sequence);
  // All that are there are to be sent, in the order of their numbers.
  void SendAll();

  // Appends to `event` what is to be sent, as much as an event may have.
  // `tickets` count what is sent.
  void TakeEvent(ReplyBuffer* event, std::vector<Admission::Ticket>* tickets);

  // To be sent.
  bool empty() const { return unsent_.empty(); }
  size_t unsent() const { return unsent_.size(); }
  size_t unsent_bytes() const { return unsent_bytes_; }

 private:
  enum class State : uint8_t { kExpected, kUnsent, kSent };
  struct Answer {
    State state = State::kExpected;
    ReplyBuffer result;
    Admission::Ticket ticket;
  };
  struct Unsent {
    uint64_t sequence;  // 0: `lost`
    ReplyBuffer lost;
  };

  void Queue(uint64_t sequence, Answer& answer);
  void Keep(uint64_t sequence, Answer& answer);
  void ForgetOldest();

  // Those that are expected, unsent, or kept.
  std::map<uint64_t, Answer> answers_;
  std::deque<Unsent> unsent_;  // some may have been forgotten meanwhile
  size_t unsent_bytes_ = 0;
  std::deque<uint64_t> kept_;  // by when they were sent; the same
  size_t kept_bytes_ = 0;
};

}  // namespace weir
