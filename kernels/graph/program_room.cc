#include "kernels/graph/program_room.h"

#include <utility>

namespace weir {

ProgramRoom::ProgramRoom(size_t max_bytes,
                         std::shared_ptr<ReclaimQueue> reclaim,
                         std::weak_ptr<Keeper> keeper)
    : max_bytes_(max_bytes),
      reclaim_(std::move(reclaim)),
      keeper_(std::move(keeper)) {}

absl::Status ProgramRoom::Await(const std::stop_token& stop) const {
  if (reclaim_ == nullptr) return absl::OkStatus();
  // Whoever passed the bound has asked for a trim, which is in the queue.
  if (reclaim_->AwaitRoom(stop) && (!exceeded() || reclaim_->Flush(stop))) {
    return absl::OkStatus();
  }
  return absl::CancelledError(
      "nobody wants any more what waited for the end of others");
}

void ProgramRoom::Trim() {
  if (!exceeded()) return;
  const auto trim = [room = shared_from_this()] {
    // What is dropped on this thread ends here and now, so that the count is
    // right each time.
    while (room->exceeded()) {
      const std::shared_ptr<Keeper> keeper = room->keeper_.lock();
      if (keeper == nullptr || !keeper->DropIdle()) return;
    }
  };
  if (reclaim_ == nullptr) {
    trim();
  } else {
    reclaim_->Post(trim);
  }
}

}  // namespace weir
