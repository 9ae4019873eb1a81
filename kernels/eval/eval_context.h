// What one handler owns while it evaluates: device, stream policy, mode, random
// state, and its pending work in order. A context is active in at most one
// handler: whoever wants in takes an Activation, and a second handler is
// refused at once or, if it asks, queued until its deadline. Nothing of a
// context lives in thread-local state, so nothing leaks between requests that
// share a thread.
//
// It is put together of machines with a state of their own each: who is inside
// (Occupancy), what is accepted and not launched (WorkQueue), the lane and what
// is on it (LaneHold), what waits for Flush (DeferredSet), and the places in
// its order with the timeline of their ends (InOrderEnd). A work goes through
// them by its own stages (work_stages.cc).
//
// A context holds a lane while it has work there, or about to be, and not
// longer. Its works run in the order of their submission; a wait of one holds
// back only later ones of the same context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/deferred_set.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_mode.h"
#include "kernels/eval/executor.h"
#include "kernels/eval/in_order_end.h"
#include "kernels/eval/lane_hold.h"
#include "kernels/eval/occupancy.h"
#include "kernels/eval/rng.h"
#include "kernels/eval/work.h"
#include "kernels/eval/work_queue.h"

namespace weir {

struct ContextOptions {
  EvalMode mode = EvalMode::kEager;
  RngState rng = {};
  // Unfinished works, and as many deferred ones; more are refused. Flush makes
  // of the ones the others, so that there are twice as many at most.
  size_t max_pending = 1024;
  Executor* executor = nullptr;  // null: a strand on the engine's threads
};

// A work that ended in an error nobody has been told about yet.
struct FailedWork {
  uint64_t number = 0;
  uint64_t tag = 0;  // WorkRequest::tag
  std::string label;
  absl::Status status;
};

// A work that was deferred.
struct FlushedWork {
  uint64_t tag = 0;  // WorkRequest::tag
  std::string label;
  // As it was deferred since the last Flush, from 1.
  uint64_t position = 0;
  uint64_t number = 0;  // in the context's order; 0: it has no place there
};

struct FlushResult {
  // Deferred works that were submitted. Of those that a use had run before, or
  // that were cancelled or late, their observers alone are told.
  std::vector<FlushedWork> executed;
  // Deferred works whose results were given up unread: never run, ended with
  // CANCELLED.
  std::vector<FlushedWork> dropped;
  // Since the last Flush: the newest kMaxFailedKept of `failed_total`, in the
  // context's order.
  std::vector<FailedWork> failed;
  uint64_t failed_total = 0;
  static constexpr size_t kMaxFailedKept = 64;
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
  const std::shared_ptr<Timeline>& timeline() const {
    return order_.timeline();
  }
  size_t unfinished() const { return order_.unfinished(); }
  size_t deferred() const { return deferred_->size(); }
  // Where its random numbers go on: those of the works that were accepted by
  // now are drawn.
  RngState rng() const;
  uint64_t refused_entries() const { return occupancy_->refused(); }

 private:
  friend class Activation;
  friend class Work;

  EvalContext(Engine* engine, const ContextOptions& options);

  Executor& executor() const { return *executor_; }

  void Submit(Work* work, WorkObserver* observer);
  void Defer(std::shared_ptr<Work> work, WorkObserver* observer);
  FlushResult Flush();

  // What has its place in the order and in the queue, in that order, and has
  // not begun: each is lent to whoever gave it the place.
  struct Placed {
    Work* work = nullptr;  // one of the two
    JoinedWork* joined = nullptr;
  };
  using AllPlaced = std::vector<Placed>;
  void Begin(const AllPlaced& placed);

  // Gives the work its place, behind deferred ones that it needs, and has it
  // begin.
  void Enqueue(Work* work);
  void DrawSeed(Work& work);
  void SetRng(const RngState& rng);
  // CONTEXT_FULL; `works` are "unfinished", for example.
  absl::Status Full(const char* works, size_t limit) const;
  // Whether one more may be deferred.
  absl::Status HasRoomForDeferred() WEIR_REQUIRES(placing_);

  // In their order; neighbors that can be joined are to run as one graph. They
  // have their room, and their seeds, already.
  AllPlaced PlaceDeferred(DeferredSet::Works works) WEIR_REQUIRES(placing_);
  JoinedWork* PlaceJoined(std::unique_ptr<JoinedWork> owned)
      WEIR_REQUIRES(placing_);
  void BeginJoined(JoinedWork* joined);
  // On the executor, whoever is inside: others wait for some of the deferred.
  void RunWanted();
  // As soon as anybody waits for `point`, or does so already, the deferred work
  // with this number is wanted.
  void RunOnceWanted(const Point& point, uint64_t number);
  void JoinedCompiled(JoinedWork* joined, ProgramCache::ProgramOr program);
  // What a joined work waits for in the program cache, if a member was
  // cancelled.
  void CallOffJoined();
  // The joined work is over: its members have its results, or run one by one.
  // REQUIRES: whoever drives it or has it lent calls this, or it was launched.
  void EndJoined(JoinedWork* joined, absl::Status status, bool launched);

  // A work that was launched is done with its lane.
  void LeaveLane(size_t launches, bool suspect);
  // A work with a place is over, with its status.
  void EndPlaced(const Work& work);

  Engine* const engine_;
  const ContextOptions options_;
  const std::shared_ptr<Strand> strand_;  // if it brought no executor
  Executor* const executor_;
  const uint64_t id_;

  const std::shared_ptr<Occupancy> occupancy_;
  const std::shared_ptr<WorkQueue> queue_;
  LaneHold lane_;
  const std::shared_ptr<DeferredSet> deferred_;
  InOrderEnd order_;

  // The owner's own (an Activation is needed to reach them).
  EvalMode mode_;

  // Who takes works out of the set, or gives places, has it until they stand in
  // the queue: so places there follow the order of submission, though others
  // than the owner have works run that they wait for.
  Mutex placing_;
  // How many had been deferred at the last Flush.
  uint64_t flushed_ WEIR_GUARDED_BY(placing_) = 0;

  mutable Mutex mu_;
  RngState rng_ WEIR_GUARDED_BY(mu_);
  std::vector<JoinedWork*> joined_ WEIR_GUARDED_BY(mu_);  // that have not ended
  std::deque<FailedWork> failed_ WEIR_GUARDED_BY(mu_);
  uint64_t failed_total_ WEIR_GUARDED_BY(mu_) = 0;
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
  void set_rng(const RngState& rng) { context_->SetRng(rng); }

  // Takes `work` (which holds its request) and resolves its settings now. Every
  // outcome, refusal included, is told to `observer`. `work` and `observer`
  // stay until OnDone. REQUIRES: the mode is not kDeferred (see Defer), or some
  // output is read inline.
  void Submit(Work* work, WorkObserver* observer) {
    context_->Submit(work, observer);
  }

  // As Submit, in any mode. Under kDeferred the work waits for Flush, for a
  // work of this context that reads it or comes after it, or for anybody who
  // waits for its point or for a signal of its: then it is run, with those that
  // were deferred before it, and whoever needs it does not enter the context.
  // `work` is held for those who want what it makes: at Flush it is dropped if
  // nobody else holds this pointer, or its point, and it has no signal. So who
  // merely keeps the object until it is over gives a pointer with counts of its
  // own. When the context is closed what is deferred ends with CANCELLED. The
  // last reference may be let go of a moment after OnDone: who then ends the
  // engine keeps one.
  void Defer(std::shared_ptr<Work> work, WorkObserver* observer) {
    context_->Defer(std::move(work), observer);
  }

  // Submits what was deferred, in order, and tells what failed since last time,
  // whoever was told of it meanwhile.
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
