// Plans that callers wait for, made on threads of their own: of one program one
// at a time, for one owner after the other, and what is quick behind nothing
// that is dear. What nobody waits for any more leaves the queue at once, and
// ends at its next step if it is being made. Thread-safe; made by ProgramCache,
// shared with timers, which may fire later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/longest_wait.h"
#include "kernels/base/mutex.h"
#include "kernels/base/stop_token.h"
#include "kernels/base/thread.h"
#include "kernels/base/timer_queue.h"
#include "kernels/base/turn_queue.h"
#include "kernels/graph/program.h"

namespace weir {

// ProgramCacheOptions has its defaults from here, but for max_wait.
struct PlanQueueOptions {
  size_t max_waiters = 65536;
  int threads = 3;
  absl::Duration quick_plan = absl::Milliseconds(20);
  absl::Duration max_wait = absl::Nanoseconds(kLongestWait);
};

// To plan them takes milliseconds at most, but for what kernels have prepared.
inline constexpr size_t kSmallPlanNodes = 4096;

class WEIR_EXPORT PlanQueue : public std::enable_shared_from_this<PlanQueue> {
 public:
  using PlanOr = absl::StatusOr<std::shared_ptr<const Plan>>;
  using Done = absl::AnyInvocable<void(PlanOr)>;
  // A caller that waits. 0: it does not wait (any more).
  using WaitId = uint64_t;

  // `timers` outlives it.
  PlanQueue(TimerQueue* timers, const PlanQueueOptions& options);
  ~PlanQueue();  // Stop()

  // As ProgramCache::MakePlan.
  WaitId Make(std::shared_ptr<const Program> program,
              std::vector<HostTensor> inputs, Nanos deadline, Done done,
              std::string owner);
  void Cancel(WaitId wait);

  size_t queued() const;

  // Everybody is told: who waits at once, whose plan is being made when it has
  // ended, which it does at its next step.
  void Close();
  void Stop();  // Close, and waits for that

 private:
  // What to expect of a program's next plan.
  enum Kind : size_t { kQuick, kUnknown, kDear, kKinds };
  struct Group;
  struct Planning {
    WaitId id = 0;
    std::shared_ptr<const Program> program;
    std::vector<HostTensor> inputs;
    bool reads_inputs = false;
    StopSource stop;
    // Guarded by mu_.
    Done done;          // null: it was told
    absl::Status left;  // what to tell instead of the plan
    TimerQueue::TimerId timer = 0;
    Group* group = nullptr;  // null: it is being made, and
    std::list<std::shared_ptr<Planning>>::iterator place;
  };
  using Turns = TurnQueue<Group*, kKinds>;
  struct Planned;
  // What one owner waits for of one program: something.
  struct Group {
    Planned* of = nullptr;
    std::list<std::shared_ptr<Planning>> waiting;
    Turns::Place place;  // whose weight is how many
  };
  // A program with plans that are waited for, or made.
  struct Planned {
    uint64_t number = 0;
    Kind kind = kUnknown;
    bool running = false;
    std::map<std::string, Group> groups;  // by owner
  };
  struct Taken {
    std::shared_ptr<Planning> planning;
    Turns::Owner owner;
    uint64_t program_number = 0;
  };

  Kind KindOf(const Program& program) const;
  absl::Status CheckRoom(const std::string& owner) const WEIR_REQUIRES(mu_);
  void Enqueue(const std::shared_ptr<Planning>& planning,
               const std::string& owner) WEIR_REQUIRES(mu_);
  // Out of the queue, unasked for. REQUIRES: it waits.
  void Dequeue(Planning& planning) WEIR_REQUIRES(mu_);
  void Forget(Group& group) WEIR_REQUIRES(mu_);  // of whom nothing waits
  // A thread, for plans of kinds up to that.
  void Run(Kind most);
  std::optional<Taken> Take(Kind most) WEIR_REQUIRES(mu_);
  void MakePlan(const Taken& taken);
  // The plan of a program that is of this kind now has ended.
  void Ended(const Taken& taken, Kind kind) WEIR_REQUIRES(mu_);
  // The caller gets `status`, and what nobody waits for then is given up.
  void Leave(WaitId id, absl::Status status);

  TimerQueue* const timers_;
  const PlanQueueOptions options_;

  mutable Mutex mu_;
  CondVar work_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  WaitId next_wait_ WEIR_GUARDED_BY(mu_) = 1;
  std::unordered_map<WaitId, std::shared_ptr<Planning>> waits_
      WEIR_GUARDED_BY(mu_);
  std::unordered_map<uint64_t, Planned> programs_ WEIR_GUARDED_BY(mu_);
  Turns turns_ WEIR_GUARDED_BY(mu_);
  size_t queued_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<Thread> threads_;  // until Stop
};

}  // namespace weir
