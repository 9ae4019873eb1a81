// Places on a stream that were taken before their works are there, under
// numbers of their caller's. One that is not filled in time is given up, so
// that those behind it go on. What became of the newest is remembered.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/timer_queue.h"
#include "kernels/eval/named_stream.h"

namespace weir {

class StreamSlots : public std::enable_shared_from_this<StreamSlots> {
 public:
  // How many that are filled or expired are known by their numbers.
  static constexpr size_t kOverKept = 1024;

  // `timers` outlives all slots of them.
  static std::shared_ptr<StreamSlots> Create(TimerQueue* timers) {
    return std::shared_ptr<StreamSlots>(new StreamSlots(timers));
  }

  // `place` under the number `slot`, until `expires`. INVALID_ARGUMENT for 0;
  // ALREADY_EXISTS, reason NUMBER_IN_USE, for one that waits to be filled.
  absl::Status Reserve(uint64_t slot, StreamPlace place, Nanos expires);

  // Takes it, once. FAILED_PRECONDITION, reason SLOT_FILLED or SLOT_EXPIRED,
  // for one that is over; NOT_FOUND, reason SLOT_NOT_FOUND, for what is none.
  absl::StatusOr<StreamPlace> Fill(uint64_t slot);

  // Gives up those that wait to be filled.
  void Close();

 private:
  enum class State : uint8_t { kReserved, kFilled, kExpired };
  struct Slot {
    State state = State::kReserved;
    StreamPlace place;  // while it is reserved
    TimerQueue::TimerId timer = 0;
    uint64_t id = 0;  // one number may be used again
  };

  explicit StreamSlots(TimerQueue* timers) : timers_(timers) {}
  void Expire(uint64_t slot, uint64_t id);
  // Remembers it, and forgets the oldest.
  void IsOver(uint64_t number, Slot& slot, State state) WEIR_REQUIRES(mu_);

  TimerQueue* const timers_;
  Mutex mu_;
  bool closed_ WEIR_GUARDED_BY(mu_) = false;
  uint64_t last_id_ WEIR_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Slot> slots_ WEIR_GUARDED_BY(mu_);
  std::deque<std::pair<uint64_t, uint64_t>> over_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
