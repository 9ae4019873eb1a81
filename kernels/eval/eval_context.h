// What one handler owns while it evaluates: device, stream policy, mode, random
// state, and its pending work in order. A context is active in at most one
// handler: whoever wants in takes an Activation, and a second handler is
// refused at once or, if it asks, queued until its deadline. Nothing of a
// context lives in thread-local state, so nothing leaks between requests that
// share a thread.
//
// A context holds a lane while it has unfinished work and not longer. Its works
// run in the order of their submission; a wait of one holds back only later
// ones of the same context.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/stream_pool.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_mode.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/occupancy.h"
#include "kernels/eval/rng.h"
#include "kernels/eval/work.h"

namespace weir {

struct ContextOptions {
  EvalMode mode = EvalMode::kEager;
  RngState rng = {};
  // Unfinished works, and as many deferred ones; more are refused. Flush makes
  // of the ones the others, so that there are twice as many at most.
  size_t max_pending = 1024;
  Executor* executor = nullptr;  // null: the engine's
};

// A work that ended in an error nobody has been told about yet.
struct FailedWork {
  uint64_t number = 0;
  std::string label;
  absl::Status status;
};

struct FlushResult {
  std::vector<uint64_t> executed;  // deferred works that were submitted
  std::vector<uint64_t> dropped;   // results were given up unread: never run,
                                   // ended with CANCELLED
  std::vector<FailedWork> failed;  // since the last Flush
};

class Activation;

class WEIR_EXPORT EvalContext
    : public std::enable_shared_from_this<EvalContext> {
 public:
  // `engine` outlives the context.
  static std::shared_ptr<EvalContext> Create(Engine* engine,
                                             const ContextOptions& options);
  ~EvalContext();  // REQUIRES: no activation and no unfinished work
  EvalContext(const EvalContext&) = delete;
  EvalContext& operator=(const EvalContext&) = delete;

  // Makes the context active in `handler`, at once or when it is free: see
  // Occupancy, which has the rules and the errors.
  absl::StatusOr<Activation> Enter(HandlerId handler);
  Occupancy::EntryId EnterQueued(
      HandlerId handler, Nanos deadline,
      absl::AnyInvocable<void(absl::StatusOr<Activation>)> done);
  bool CancelEntry(Occupancy::EntryId entry) {
    return occupancy_->CancelEntry(entry);
  }

  // Never occupy the context; any thread.
  Engine& engine() const { return *engine_; }
  uint64_t id() const { return id_; }
  HandlerId owner() const { return occupancy_->owner(); }
  // Value n is reached when work number n is done.
  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }
  size_t unfinished() const;
  uint64_t refused_entries() const { return occupancy_->refused(); }

 private:
  friend class Activation;
  friend class Work;

  EvalContext(Engine* engine, const ContextOptions& options);

  void Submit(Work* work, WorkObserver* observer);
  void Defer(std::shared_ptr<Work> work, WorkObserver* observer);
  FlushResult Flush();

  // Resolves the settings; reserves the place in the context's order.
  void Accept(Work* work, WorkObserver* observer);
  // Ends a work that has no place in the order: what waits for it is told.
  void EndUnplaced(Work& work, absl::Status status);
  // The same for one that was not accepted: it may be tried again.
  void Refuse(Work& work, absl::Status status);
  // A work that was deferred has its room already.
  void Enqueue(Work* work, bool was_deferred);
  void RunDeferredBefore(const Work& work);
  // In their order; neighbors that can be joined run as one graph.
  void RunDeferred(std::vector<std::shared_ptr<Work>> works);
  void EnqueueJoined(std::unique_ptr<JoinedWork> owned);
  void JoinedCompiled(JoinedWork* joined, ProgramCache::ProgramOr program);
  // REQUIRES: the joined work is not in the queue, or is and was not launched.
  void FinishJoined(JoinedWork* joined, absl::Status status, bool launched);
  // Finds the plan, or has it made and comes back later (false).
  bool FindPlan(Work* work);
  void PlanMade(Work* work, ProgramCache::PlanOr plan);
  // False if the work has ended.
  bool Planned(Work* work, std::shared_ptr<const class Plan> plan);

  void Append(Work* work) WEIR_REQUIRES(mu_);
  // "unfinished" or "deferred".
  absl::Status Full(const char* works) const;

  // Drives the queue's head through its stages. One thread pumps at a time;
  // another one leaves a note and goes.
  void Pump();
  // Under the lock: what is in the queue is not done, so its executor is there,
  // and nobody takes it out before the lock is left. With nothing in the queue
  // there is nothing to pump, and there may be no executor.
  void PostPump() WEIR_REQUIRES(mu_);
  void RunStage(Work* work);
  void WaitForPoints(Work* work);
  void TakeLane(Work* work);
  void LaunchHead(Work* work);
  // Gives a work to its stream on a thread that may wait; what is behind it in
  // the queue waits for that.
  void LaunchApart(Work* work, Stream* stream);
  // Has memory made for the head, and comes back to launch it.
  void GrowMemory(Work* work, Lane* lane);
  // Has the head's inputs copied where that is long, and comes back.
  void StageApart(Work* work);
  void Prepared(Work* work, absl::Status status);
  // A wait of the head; its end has the head go on. EndWait: false if it was
  // over already (the work was cancelled meanwhile).
  uint64_t BeginWait();
  bool EndWait(uint64_t ticket, absl::Status status) WEIR_REQUIRES(mu_);
  Nanos WaitDeadline(const Work& work) const;

  void Unlink(Work* work) WEIR_REQUIRES(mu_);
  // Puts the members where the joined work is in the queue, or in front.
  void Split(JoinedWork& joined) WEIR_REQUIRES(mu_);
  // A work is done: counts, goes on if the stream has room again, and gives up
  // the lease if nobody needs it.
  StreamLease ReleaseLane(const Work& work, bool launched, bool failed)
      WEIR_REQUIRES(mu_);
  void FinishUnlaunched(Work* work, absl::Status status);
  // The last thing that happens to a work; it may be gone afterwards.
  void Finish(Work* work, absl::Status status, bool launched);
  void AdvanceTimeline(uint64_t number, const absl::Status& status);

  Engine* const engine_;
  const ContextOptions options_;
  Executor* const executor_;
  const uint64_t id_;
  const std::shared_ptr<Timeline> timeline_;

  const std::shared_ptr<Occupancy> occupancy_;

  // The owner's own (an Activation is needed to reach them).
  EvalMode mode_;
  RngState rng_;

  mutable Mutex mu_;
  std::deque<std::shared_ptr<Work>> deferred_ WEIR_GUARDED_BY(mu_);
  Work* head_ WEIR_GUARDED_BY(mu_) = nullptr;  // accepted, not yet launched
  Work* tail_ WEIR_GUARDED_BY(mu_) = nullptr;
  size_t unfinished_ WEIR_GUARDED_BY(mu_) = 0;  // queued and launched
  size_t launched_ WEIR_GUARDED_BY(mu_) = 0;    // on the leased lane
  size_t launches_ WEIR_GUARDED_BY(mu_) = 0;    // Work::launches_ of those
  uint64_t last_number_ WEIR_GUARDED_BY(mu_) = 0;
  bool pumping_ WEIR_GUARDED_BY(mu_) = false;
  bool pump_again_ WEIR_GUARDED_BY(mu_) = false;
  bool sweep_ WEIR_GUARDED_BY(mu_) = false;  // some queued work was cancelled
  bool waiting_ WEIR_GUARDED_BY(mu_) = false;
  bool joined_runs_ WEIR_GUARDED_BY(mu_) = false;  // later works are held back
  bool full_ WEIR_GUARDED_BY(mu_) = false;         // the stream takes no more
  bool launching_ WEIR_GUARDED_BY(mu_) = false;    // on another thread
  uint64_t ticket_ WEIR_GUARDED_BY(mu_) = 0;       // of the head's present wait
  uint64_t lane_wait_ WEIR_GUARDED_BY(mu_) = 0;    // in the pool, if for a lane
  uint64_t point_wait_ WEIR_GUARDED_BY(mu_) = 0;   // in the dispatcher
  absl::Status wait_status_ WEIR_GUARDED_BY(mu_);
  StreamLease lease_ WEIR_GUARDED_BY(mu_);
  std::deque<FailedWork> failed_ WEIR_GUARDED_BY(mu_);
  // Works may end out of order (a queued one is cancelled while an earlier one
  // runs); the timeline moves in order.
  std::map<uint64_t, absl::Status> ended_ WEIR_GUARDED_BY(mu_);
  uint64_t next_to_end_ WEIR_GUARDED_BY(mu_) = 1;
  bool advancing_ WEIR_GUARDED_BY(mu_) = false;
};

class WEIR_EXPORT Activation {
 public:
  Activation() = default;
  Activation(Activation&&) noexcept = default;
  Activation& operator=(Activation&& other) noexcept;
  ~Activation() { Leave(); }

  EvalContext& context() const { return *context_; }
  explicit operator bool() const { return context_ != nullptr; }
  void Leave();

  // The context's settings, for later submissions.
  EvalMode mode() const { return context_->mode_; }
  void set_mode(EvalMode mode) { context_->mode_ = mode; }
  RngState& rng() { return context_->rng_; }

  // Takes `work` (which holds its request) and resolves its settings now. Every
  // outcome, refusal included, is told to `observer`. `work` and `observer`
  // stay until OnDone. REQUIRES: the mode is not kDeferred (see Defer).
  void Submit(Work* work, WorkObserver* observer) {
    context_->Submit(work, observer);
  }

  // As Submit, in any mode. Under kDeferred the work waits for Flush, or for a
  // work of this context that reads it or comes after it. At Flush it is
  // dropped if nobody else holds it or its point and it has no signal; when the
  // context is closed it ends with CANCELLED.
  void Defer(std::shared_ptr<Work> work, WorkObserver* observer) {
    context_->Defer(std::move(work), observer);
  }

  // Submits what was deferred, in order, and tells what failed since last time.
  // Works that brought their graphs are joined and compiled as one; what is
  // submitted later runs when that is done. Does not wait.
  FlushResult Flush() { return context_->Flush(); }

 private:
  friend class EvalContext;
  explicit Activation(std::shared_ptr<EvalContext> context)
      : context_(std::move(context)) {}
  std::shared_ptr<EvalContext> context_;
};

}  // namespace weir
