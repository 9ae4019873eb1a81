// The room that programs share: the count of their bytes, its bound, and where
// they end. A program holds the room that it was compiled in, and makes its
// plans there, whoever asks for them: Program::MakePlan calls Await and Trim.
// So no bound is passed because another's was looked at. Thread-safe; outlives
// whoever made it.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <stop_token>

#include "absl/status/status.h"
#include "kernels/base/byte_account.h"
#include "kernels/base/export.h"
#include "kernels/base/reclaimer.h"

namespace weir {

class WEIR_EXPORT ProgramRoom
    : public std::enable_shared_from_this<ProgramRoom> {
 public:
  // Who keeps programs of the room, and can let them go. Any thread.
  class Keeper {
   public:
    // Drops a program that nobody uses; false: there is none.
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
  bool exceeded() const { return account_->bytes() > max_bytes_; }

  // Before something is made here: waits until few enough objects wait for
  // their end (ReclaimQueue::AwaitRoom), and beyond the bound until what was
  // dropped has ended and Trim has done what it can. CANCELLED as soon as
  // `stop` is requested. Not for threads that may not wait.
  absl::Status Await(const std::stop_token& stop) const;

  // After something was made here: beyond the bound, idle programs go until it
  // holds or none is left. On the thread of reclaim(), so that the caller does
  // not wait for their end; without one, here.
  void Trim();

 private:
  const size_t max_bytes_;
  const std::shared_ptr<ReclaimQueue> reclaim_;
  const std::weak_ptr<Keeper> keeper_;
  const std::shared_ptr<ByteAccount> account_ = std::make_shared<ByteAccount>();
};

}  // namespace weir
