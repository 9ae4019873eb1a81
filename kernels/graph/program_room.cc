#include "kernels/graph/program_room.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"

namespace weir {

ProgramRoom::ProgramRoom(size_t max_bytes,
                         std::shared_ptr<ReclaimQueue> reclaim,
                         std::weak_ptr<Keeper> keeper)
    : max_bytes_(max_bytes),
      reclaim_(std::move(reclaim)),
      keeper_(std::move(keeper)) {}

bool ProgramRoom::exceeded(size_t own) const {
  const size_t bytes = account_->bytes();
  return bytes > max_bytes_ && bytes - max_bytes_ > own;
}

bool ProgramRoom::Flush(const StopToken& stop) const {
  return reclaim_ == nullptr || reclaim_->Flush(stop);
}

absl::Status ProgramRoom::Admit(size_t own, const StopToken& stop) {
  bool awaited = reclaim_ == nullptr || reclaim_->AwaitRoom(stop);
  if (awaited && exceeded(own)) {
    // What was in use when others looked may be idle now.
    Trim();
    awaited = Flush(stop);
  }
  if (!awaited) {
    return absl::CancelledError(
        "nobody wants any more what waited for the end of others");
  }
  if (!exceeded(own)) return absl::OkStatus();
  return TooManyBytesInUse("programs and plans", account_->bytes(), "max_bytes",
                           max_bytes_);
}

void ProgramRoom::Trim() {
  if (!exceeded()) return;
  const auto trim = [room = shared_from_this()] {
    // What is dropped on this thread ends here and now, so that the count is
    // right each time.
    while (room->exceeded()) {
      const std::shared_ptr<Keeper> keeper = HoldIfThere(room->keeper_);
      if (keeper == nullptr || !keeper->DropIdle()) return;
    }
  };
  if (reclaim_ == nullptr) {
    trim();
  } else {
    reclaim_->Post(trim);
  }
}

absl::Status TooManyBytesInUse(std::string_view what, size_t bytes,
                               std::string_view name, size_t limit) {
  return WithRetryAfter(
      WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              std::string(what), " that are in use have ", bytes,
              " bytes; they may have ", limit, " (", std::string(name),
              "); try again when evaluations have ended")),
          "PROGRAM_MEMORY_EXHAUSTED",
          {{"bytes", absl::StrCat(bytes)}, {"limit", absl::StrCat(limit)}}),
      absl::Milliseconds(200));
}

}  // namespace weir
