// The room that programs share: the count of their bytes, its bound, and where
// they end. A program holds the room that it was compiled in, and makes its
// plans there, whoever asks for them: Program::MakePlan calls Admit and Trim.
// So no bound is passed because another's was looked at, but by what is being
// made at the moment: its size is not known before. Thread-safe; outlives
// whoever made it.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/byte_account.h"
#include "kernels/base/export.h"
#include "kernels/base/reclaimer.h"
#include "kernels/base/stop_token.h"

namespace weir {

class WEIR_EXPORT ProgramRoom
    : public std::enable_shared_from_this<ProgramRoom> {
 public:
  // Who keeps programs of the room, and can let them go. Any thread.
  class Keeper {
   public:
    // Drops a program that nobody uses, or a plan of one that somebody uses;
    // false: there is neither.
    virtual bool DropIdle() = 0;

   protected:
    ~Keeper() = default;
  };

  // Programs end where their last holder drops them if `reclaim` is null.
  explicit ProgramRoom(size_t max_bytes = std::numeric_limits<size_t>::max(),
                       std::shared_ptr<ReclaimQueue> reclaim = nullptr,
                       std::weak_ptr<Keeper> keeper = {});

  // Of everything that lies in the room.
  const std::shared_ptr<ByteAccount>& account() const { return account_; }
  const std::shared_ptr<ReclaimQueue>& reclaim() const { return reclaim_; }

  // Before something is made here: waits until few enough objects wait for
  // their end (ReclaimQueue::AwaitRoom), and beyond the bound until what is
  // idle has gone. RESOURCE_EXHAUSTED, reason PROGRAM_MEMORY_EXHAUSTED, if what
  // is in use passes it by more than `own` bytes: those of the program whose
  // plan it is, which were let in before and alone may be too many. Nobody
  // waits for others' plans to go: their works may be behind who asks.
  // CANCELLED as soon as `stop` is requested. Not for threads that may not
  // wait.
  absl::Status Admit(size_t own, const StopToken& stop);

  // Waits for the end of what was dropped before, where it ends here; false if
  // `stop` was requested first. Not for threads that may not wait.
  bool Flush(const StopToken& stop) const;

  // After something was made here: beyond the bound, what is idle goes until it
  // holds or nothing is left. On the thread of reclaim(), so that the caller
  // does not wait for their end; without one, here.
  void Trim();

 private:
  bool exceeded(size_t own = 0) const;

  const size_t max_bytes_;
  const std::shared_ptr<ReclaimQueue> reclaim_;
  const std::weak_ptr<Keeper> keeper_;
  const std::shared_ptr<ByteAccount> account_ = std::make_shared<ByteAccount>();
};

// RESOURCE_EXHAUSTED, reason PROGRAM_MEMORY_EXHAUSTED, with RetryInfo. `what`
// has `bytes` where it may have `limit`, the option `name`.
WEIR_EXPORT absl::Status TooManyBytesInUse(std::string_view what, size_t bytes,
                                           std::string_view name, size_t limit);

}  // namespace weir
