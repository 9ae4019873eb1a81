#include "server/spaces/stream_slots.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"

namespace weir {

absl::Status StreamSlots::Reserve(uint64_t slot, StreamPlace place,
                                  Nanos expires) {
  if (slot == 0) return absl::InvalidArgumentError("0 is no number of a slot");
  MutexLock lock(&mu_);
  if (closed_) return absl::CancelledError("the stream was released");
  Slot& entry = slots_[slot];
  if (entry.place) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat(
            "slot ", slot, " of the stream waits for its work already")),
        "NUMBER_IN_USE");
  }
  entry.state = State::kReserved;
  entry.place = std::move(place);
  entry.id = ++last_id_;
  entry.timer =
      timers_->Add(expires, [weak = weak_from_this(), slot, id = entry.id] {
        if (const auto self = HoldIfThere(weak)) self->Expire(slot, id);
      });
  return absl::OkStatus();
}

absl::StatusOr<StreamPlace> StreamSlots::Fill(uint64_t slot) {
  MutexLock lock(&mu_);
  const auto at = slots_.find(slot);
  if (at == slots_.end()) {
    return WithReason(
        absl::NotFoundError(absl::StrCat(
            "the stream has no slot ", slot,
            "; it never was, or has been over for long: reserve one")),
        "SLOT_NOT_FOUND");
  }
  Slot& entry = at->second;
  switch (entry.state) {
    case State::kReserved:
      break;
    case State::kFilled:
      return WithReason(
          absl::FailedPreconditionError(absl::StrCat(
              "slot ", slot, " of the stream has its work; reserve another")),
          "SLOT_FILLED");
    case State::kExpired:
      return WithReason(absl::FailedPreconditionError(absl::StrCat(
                            "slot ", slot,
                            " of the stream was not filled in time, and those "
                            "behind it went on; reserve another, for longer")),
                        "SLOT_EXPIRED");
  }
  if (entry.timer != 0) timers_->Cancel(entry.timer);
  StreamPlace place = std::move(entry.place);
  IsOver(slot, entry, State::kFilled);
  return place;
}

void StreamSlots::Expire(uint64_t slot, uint64_t id) {
  StreamPlace place;  // ends without the lock
  MutexLock lock(&mu_);
  const auto at = slots_.find(slot);
  if (at == slots_.end() || at->second.id != id || !at->second.place) return;
  place = std::move(at->second.place);
  IsOver(slot, at->second, State::kExpired);
}

void StreamSlots::IsOver(uint64_t number, Slot& slot, State state) {
  slot.state = state;
  slot.timer = 0;
  over_.emplace_back(number, slot.id);
  if (over_.size() <= kOverKept) return;
  const auto [oldest, id] = over_.front();
  over_.pop_front();
  const auto at = slots_.find(oldest);
  if (at != slots_.end() && at->second.id == id) slots_.erase(at);
}

void StreamSlots::Close() {
  std::map<uint64_t, Slot> slots;  // end without the lock
  MutexLock lock(&mu_);
  closed_ = true;
  slots.swap(slots_);
  for (auto& [number, slot] : slots) {
    if (slot.timer != 0) timers_->Cancel(slot.timer);
  }
}

}  // namespace weir
