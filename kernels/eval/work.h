// One submitted evaluation. The caller fills in `request`, submits the work
// through an Activation of its context, and is told twice, once each: when the
// call may return under its mode, and when the work is done. The object is the
// caller's, stays until it was told that the work is done, and can be used
// again from then on (no heap block per use in steady state).
//
// Threads: `request` belongs to the caller until Submit and again after OnDone.
// state(), Cancel(), Watch() and Unwatch() may be called from any thread;
// mode() and point() from the return of Submit on, and number(), but of a
// deferred work. Everything else is for the observer's callbacks while they
// run, and for whoever has been told by one that the work is done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/holders.h"
#include "kernels/base/mutex.h"
#include "kernels/device/pinned_pool.h"
#include "kernels/eval/eval_mode.h"
#include "kernels/eval/lane_hold.h"
#include "kernels/eval/rng.h"
#include "kernels/eval/sync_report.h"
#include "kernels/eval/work_dependencies.h"
#include "kernels/eval/work_memory.h"
#include "kernels/eval/work_progress.h"
#include "kernels/eval/work_queue.h"
#include "kernels/eval/work_request.h"
#include "kernels/graph/plan.h"
#include "kernels/graph/program_cache.h"

namespace weir {

class DeferredSet;
class EvalContext;
class JoinedWork;
class Work;

// Whether a work ended so because nobody waited for it any more, which says
// nothing about the device.
inline bool GaveUp(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

// Whoever submitted the work. Callbacks run on the submitting thread, the
// context's executor, or a thread that launches or completes: they only note
// and post.
class WEIR_EXPORT WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  // The call may return (state() says how far it came). Before or with OnDone.
  virtual void OnReturn(Work& work) = 0;
  // Its plan is there, and so the sizes of its outputs: an error ends the work
  // before anything is taken for it. At most once, on the submitting thread or
  // the executor's; not for a deferred work that runs joined with others.
  virtual absl::Status OnPlanned(Work&) { return absl::OkStatus(); }
  // In place of that, of a deferred work that is to run joined with others:
  // what of its outputs, by Program::outputs(), is kept outside of them; null
  // for others. An error has all of them run one by one, as any failure of the
  // joined run has: then OnPlanned comes, too.
  virtual absl::Status OnJoined(Work&,
                                absl::Span<const TensorMeta* const> /*kept*/) {
    return absl::OkStatus();
  }
  // It has its lane and memory, and goes to the stream now: its time in queues
  // is over. At most once, before OnDone, on the submitting thread or the
  // executor's; not for a deferred work that runs joined with others.
  virtual void OnLaunch(Work&) {}
  // kCompleted or kError. The work may be reused or destroyed from here on.
  virtual void OnDone(Work& work) = 0;
};

class WEIR_EXPORT Work final : private StreamTask, private QueueItem {
 public:
  Work();
  ~Work() override;  // REQUIRES: idle or done

  WorkRequest request;

  WorkState state() const { return progress_.state(); }
  bool done() const { return progress_.done(); }

  // Queued work is dropped and ends with CANCELLED. Launched work drains, and
  // then ends as it would have; on the CPU, where a thread would work for
  // nobody, it ends before its next step, and elsewhere one of many launches
  // before its next ones. Idempotent.
  void Cancel();
  bool cancelled() const { return cancelled_.load(); }

  // Anybody else who wants to know how far a submitted work has come, as
  // WorkProgress has it: told of its end before OnDone, and dropped then.
  using Watcher = WorkProgress::Watcher;
  uint64_t Watch(Watcher watcher) {
    return progress_.Watch(std::move(watcher));
  }
  void Unwatch(uint64_t watch) { progress_.Unwatch(watch); }

  // Lets go of the program and its plan, so that a work that is kept for its
  // next use keeps neither alive. REQUIRES: idle or done.
  void DropProgram() {
    request.program = nullptr;
    plan_ = nullptr;
  }

  const absl::Status& status() const { return status_; }  // OK while pending
  const SyncReport& report() const { return report_; }
  uint64_t number() const { return number_; }  // in its context, from 1
  // Reached when the work is done; a dependant in any context may wait on it,
  // and has it run thereby if it is deferred. Null if it was not accepted.
  Point point() const;
  EvalMode mode() const { return mode_; }
  // The request's, or what was drawn for it; 0 if it has none and its program
  // draws nothing.
  uint64_t seed() const { return seed_; }
  // What the context's random state was when it was drawn there; empty if it
  // was not.
  const std::optional<RngState>& drawn_from() const { return drawn_from_; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }

  // When done and OK. `i` indexes Program::outputs().
  const TensorMeta& OutputMeta(size_t i) const;             // kInline
  absl::Span<const std::byte> OutputBytes(size_t i) const;  // kInline
  const Tensor& OutputTensor(size_t i) const;               // kKeep; from
                                                            // kScheduled on
  // The memory behind all inline outputs, for a reply that outlives the work;
  // OutputBytes stays valid as long as the buffer lives.
  PinnedBuffer TakeOutputBuffer() { return std::move(result_.buffer); }

 private:
  friend class DeferredSet;
  friend class EvalContext;
  friend class JoinedWork;

  // What has to happen next. The stages are in work_stages.cc.
  enum class Stage : uint8_t {
    kIdle,
    kDeferred,
    kNeedsPlan,  // once its producers have their results' memory
    kPlanning,   // its submitter has it, or a plan is made
    kPlanned,    // waits for points
    kReady,      // takes a lane
    kLeased,     // takes memory, is launched
    kPreparing,  // memory is made for it, or large inputs are copied, elsewhere
    kLaunched,
  };

  // -- Of a submission, by EvalContext.

  // Takes what the request says and never changes again. `mode` is the
  // context's.
  void Accept(EvalMode mode, WorkObserver* observer);
  void SetSeed(uint64_t seed) { seed_ = seed; }
  void SetDrawnSeed(uint64_t seed, const RngState& from) {
    seed_ = seed;
    drawn_from_ = from;
  }
  // It waits for its use in `set`; `end` is its point.
  void Defer(std::shared_ptr<Timeline> end, std::weak_ptr<DeferredSet> set);
  // It keeps itself until it is done.
  void KeepSelf(std::shared_ptr<Work> self) { self_ = std::move(self); }
  // It has this place in the context's order.
  void Place(std::shared_ptr<Timeline> timeline, uint64_t number);
  // In the queue, lent to the submitter: goes as far as it can.
  void Start();
  // Was not accepted: may be tried again.
  void Refuse(absl::Status status);
  // It is the work of a joined graph; the last of its members has that number.
  void BeginJoined(uint64_t last_number);
  // It ran as one of so many: what is told of that run is told of it.
  void NoteJoined(const SyncReport& report, size_t works);
  // Null before it was enqueued and once it is done: a context may hold works
  // that hold others of its own.
  std::shared_ptr<EvalContext> context() const;
  // Without holding it, so that nobody ends a context by asking.
  bool IsOf(const EvalContext& context) const;
  void SetContext(std::shared_ptr<EvalContext> context);

  // -- QueueItem: the stages.

  Step Next() override;
  absl::Status Wanted(Nanos now) const override;
  Nanos deadline() const override {
    return std::min(request.deadline, longest_in_line_);
  }
  void Drop(absl::Status status) override;

  Step WaitForProducers();
  absl::Status ResolveInputs();  // shapes and host pointers for the plan
  // False: it is made, and the work goes on later, or has ended.
  bool FindPlan();
  void PlanMade(ProgramCache::PlanOr plan);
  // `ask` asks the program cache and returns the number of the wait, which is
  // called off when nobody wants the work any more. What comes of it comes
  // through the executor, and takes the wait first.
  void AwaitCache(ProgramCache& cache, absl::FunctionRef<uint64_t()> ask);
  uint64_t TakeCacheWait();  // 0: there is none
  bool Planned(std::shared_ptr<const Plan> plan);
  Step WaitForPoints();
  Step WaitFor(absl::Span<const Point> points);
  Step TakeLane();
  Step PrepareAndLaunch();
  // Has memory made, or large inputs copied, by a thread that may wait, and
  // comes back.
  Step PrepareApart(Lane* lane, bool grow);
  void Prepare(Lane* lane, bool grow);
  void Prepared(absl::Status status);
  // Which thread launches it: one of Engine::launcher where the driver may have
  // to be waited for, in paces where its queue may, too.
  enum class Launcher : uint8_t { kWhoeverIsHere, kApart, kApartInPaces };
  void LaunchOn(Lane* lane, size_t launches, Launcher launcher);
  // What waits for this work may wait for `at`, its place on a stream.
  void BackPoints(const Point& at) const;
  Nanos WaitDeadline() const;
  // Calls off the wait that it is in, and gives up its claim to the lane:
  // nothing of it stays where it stood in line.
  void CallOff();

  // -- StreamTask: on the stream.

  absl::Status Launch(Stream& stream) override;
  std::optional<absl::Status> Settle(const Completion& completion) override;
  void Complete(const Completion& completion) override;
  std::string Describe() const override;
  void NoteDeviceError(const absl::Status& status, bool sticky);

  // -- Its end.

  // Out of the queue, by whoever drives it or has it lent.
  void EndUnlaunched(absl::Status status);
  // What waits for it is told, with a place in the order or without one. The
  // last thing that happens to a work; it may be gone afterwards.
  void End(absl::Status status, bool launched);
  // With where the caller's program made the node at fault.
  absl::Status WithCallSite(const absl::Status& status) const;
  void Tell();  // whoever watches it, of its status

  void Advance(WorkState to);  // only forward; the report says the same
  void Return();               // OnReturn, once
  void Reset();

  // Deferred, and nobody holds it, its point or a moment that it signals.
  // REQUIRES: the caller holds it, once.
  bool IsUnread(const std::shared_ptr<Work>& holder) const {
    return !HeldByOthers(holder) && !HeldByOthers(deferred_end_) &&
           request.signal.empty();
  }
  bool AnyCancelled() const;  // it, or a work that is joined in it
  // Why nobody waits for its result any more (CANCELLED, DEADLINE_EXCEEDED),
  // and before what that was so; else OK.
  absl::Status WantedBefore(const char* what, Nanos now) const;
  absl::Status StillWanted() const;
  bool ReturnsBeforeLaunch() const {
    return return_at_ < WorkState::kScheduled;
  }

  mutable Mutex mu_;
  std::shared_ptr<EvalContext> context_ WEIR_GUARDED_BY(mu_);
  std::weak_ptr<DeferredSet> deferred_in_ WEIR_GUARDED_BY(mu_);
  // In the program cache, for a plan, or for the program of a joined work.
  uint64_t cache_wait_ WEIR_GUARDED_BY(mu_) = 0;

  std::shared_ptr<Timeline> timeline_;  // the context's, with a place on it
  WorkObserver* observer_ = nullptr;
  std::shared_ptr<Work> self_;    // deferred works keep themselves until done
  uint64_t deferred_number_ = 0;  // DeferredSet::Number
  bool awaited_ = false;          // DeferredSet::Want
  // Of a work that was deferred: at 1 once it is done.
  std::shared_ptr<Timeline> deferred_end_;
  JoinedWork* joined_ = nullptr;  // of whose graph this is the work
  Stage stage_ = Stage::kIdle;
  LaneClaim claim_;                         // while kLeased or kPreparing
  uint64_t point_wait_ = 0;                 // in the dispatcher
  uint64_t lane_wait_ = 0;                  // in the stream pool
  ThreadExecutor::TaskId memory_wait_ = 0;  // in the allocator's line
  Nanos longest_in_line_ = kNoDeadline;     // there, or in the launchers'
  size_t launches_ = 0;       // in the driver's queue, once launched
  size_t pace_launches_ = 0;  // ProgramRun's; 0: its thread may not wait
  bool waits_apart_ = false;  // its stream, for another one
  uint64_t number_ = 0;
  EvalMode mode_ = EvalMode::kEager;
  uint64_t seed_ = 0;
  std::optional<RngState> drawn_from_;
  bool returned_ = false;
  WorkState return_at_ = WorkState::kCommitted;
  WorkProgress progress_;
  Atomic<bool> cancelled_{false};
  // Its results have their memory, or nobody is going to give them any: they
  // may be looked at by works that read them.
  Atomic<bool> readable_{false};

  std::shared_ptr<const Plan> plan_;
  absl::InlinedVector<HostTensor, 4> host_inputs_;
  WorkDependencies dependencies_;

  absl::Status status_;
  SyncReport report_;
  RunResult result_;
  WorkMemory memory_{&request, &result_, &report_};
};

}  // namespace weir
