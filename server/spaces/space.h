// What one caller keeps on the server: contexts, tensors, works, timelines and
// sessions under numbers of its own, an account of how much that is, and a
// lease. All of it ends when the space is closed, once what runs is done with
// it.
//
// Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/device/point.h"
#include "kernels/graph/program.h"
#include "server/spaces/account.h"
#include "server/spaces/kept_context.h"
#include "server/spaces/kept_tensor.h"
#include "server/spaces/kept_work.h"
#include "server/spaces/number_table.h"
#include "server/spaces/space_session.h"
#include "server/spaces/space_token.h"

namespace weir {

class SpaceWork;

// NOT_FOUND, reason SPACE_NOT_FOUND.
absl::Status SpaceNotFound(uint64_t id);

// A timeline that a caller has numbered, and advances, or has works advance.
struct KeptTimeline {
  std::shared_ptr<Timeline> timeline;
  Account::Share share;
};

// The timeline, for whoever is to use it: it counts as long as anybody does,
// whatever becomes of its number.
inline std::shared_ptr<Timeline> HoldTimeline(
    const std::shared_ptr<KeptTimeline>& kept) {
  return {kept, kept->timeline.get()};
}

class Space {
 public:
  // How many works that are done are still found by their numbers; of more, the
  // oldest are forgotten.
  static constexpr size_t kDoneWorksKept = 1024;
  // How many contexts that nobody used are remembered, to tell who asks for
  // one; of more, the oldest are forgotten.
  static constexpr size_t kExpiredContextsKept = 256;

  struct Options {
    uint64_t id = 0;
    SpaceToken token;
    std::string label;
    std::string identity;
    Nanos lease = 0;
    int64_t opened_unix_ns = 0;
    Nanos now = 0;
    std::shared_ptr<Account> account;
    Account::Share share;                // of its identity's spaces
    std::shared_ptr<const void> census;  // kept as long as anything of it is
  };
  explicit Space(Options options);
  // With the last of its works. REQUIRES: it is closed.
  ~Space() = default;
  Space(const Space&) = delete;
  Space& operator=(const Space&) = delete;

  uint64_t id() const { return options_.id; }
  const SpaceToken& token() const { return options_.token; }
  const std::string& label() const { return options_.label; }
  const std::string& identity() const { return options_.identity; }
  Nanos lease() const { return options_.lease; }
  int64_t opened_unix_ns() const { return options_.opened_unix_ns; }
  Account& account() const { return *options_.account; }

  NumberTable<KeptTensor>& tensors() { return tensors_; }
  // As tensors().Take, but a number that stands for a failure is free.
  absl::StatusOr<NumberTable<KeptTensor>::Claim> TakeTensor(uint64_t number);
  NumberTable<KeptWork>& works() { return works_; }
  NumberTable<KeptContext>& contexts() { return contexts_; }
  // As contexts().Take.
  absl::StatusOr<NumberTable<KeptContext>::Claim> TakeContext(uint64_t number);
  // As contexts().Find, for whoever uses it at `now`; the error says so if it
  // was closed because nobody had for as long as its ttl.
  absl::StatusOr<std::shared_ptr<KeptContext>> FindContext(uint64_t number,
                                                           Nanos now);
  // Closes those, and tells their numbers and their ttls, for the log.
  struct ExpiredContext {
    uint64_t number = 0;
    Nanos ttl = 0;
  };
  std::vector<ExpiredContext> CloseExpiredContexts(Nanos now);
  NumberTable<KeptTimeline>& timelines() { return timelines_; }
  NumberTable<SpaceSession>& sessions() { return sessions_; }

  // -- Its lease. A call that uses the space keeps it from running out.

  bool closed() const;

  // False once it is closed.
  bool BeginUse();
  void EndUse(Nanos now);
  // How long nobody has used it; 0 while somebody does.
  Nanos idle(Nanos now) const;
  bool Expired(Nanos now) const { return idle(now) > options_.lease; }

  // Counts `program` for as long as somebody holds what this returns, once
  // however many do. Errors as Account::Take.
  absl::StatusOr<std::shared_ptr<const Account::Share>> HoldProgram(
      const Program& program);

  // -- Its works, numbered or not.

  // False once it is closed. While it is noted a work is cancelled when the
  // space ends.
  bool NoteWork(SpaceWork* work);
  void ForgetWork(SpaceWork* work);
  // A numbered work is done.
  void NoteDone(uint64_t number, std::shared_ptr<KeptWork> work);

  // Ends all that it holds; works end with CANCELLED. Idempotent.
  void Close();

 private:
  const Options options_;
  NumberTable<KeptTensor> tensors_{"tensor"};
  NumberTable<KeptWork> works_{"work"};
  NumberTable<KeptContext> contexts_{"context"};
  NumberTable<KeptTimeline> timelines_{"timeline"};
  NumberTable<SpaceSession> sessions_{"session"};

  mutable Mutex mu_;
  bool closed_ WEIR_GUARDED_BY(mu_) = false;
  size_t users_ WEIR_GUARDED_BY(mu_) = 0;
  Nanos last_used_ WEIR_GUARDED_BY(mu_);
  absl::flat_hash_set<SpaceWork*> running_ WEIR_GUARDED_BY(mu_);
  // By Program::number.
  absl::flat_hash_map<uint64_t, std::weak_ptr<const Account::Share>> programs_
      WEIR_GUARDED_BY(mu_);
  std::deque<std::pair<uint64_t, std::shared_ptr<KeptWork>>> done_
      WEIR_GUARDED_BY(mu_);
  std::deque<ExpiredContext> expired_contexts_ WEIR_GUARDED_BY(mu_);
};

// Somebody uses a space: while any use lives, its lease does not run. Moved
// from, it is none.
class SpaceUse {
 public:
  SpaceUse() = default;
  // REQUIRES: BeginUse of `space` answered true; ends that use.
  explicit SpaceUse(std::shared_ptr<Space> space) : space_(std::move(space)) {}
  SpaceUse(SpaceUse&&) noexcept = default;
  SpaceUse& operator=(SpaceUse&& other) noexcept {
    std::swap(space_, other.space_);
    return *this;
  }
  ~SpaceUse() {
    if (space_ != nullptr) space_->EndUse(NowNanos());
  }

  explicit operator bool() const { return space_ != nullptr; }
  Space* operator->() const { return space_.get(); }
  Space& operator*() const { return *space_; }
  const std::shared_ptr<Space>& shared() const { return space_; }

 private:
  std::shared_ptr<Space> space_;
};

}  // namespace weir
