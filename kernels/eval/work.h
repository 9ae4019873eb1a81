// One submitted evaluation. The caller fills in `request`, submits the work
// through an Activation of its context, and is told twice, once each: when the
// call may return under its mode, and when the work is done. The object is the
// caller's, stays until it is done, and can be used again (no heap block per
// use in steady state).
//
// Threads: `request` belongs to the caller until Submit and again after the
// work is done. state() and Cancel() may be called from any thread. Everything
// else is for the observer's callbacks and after them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/pinned_pool.h"
#include "kernels/device/stream_pool.h"
#include "kernels/eval/eval_mode.h"
#include "kernels/eval/sync_report.h"
#include "kernels/graph/plan.h"
#include "kernels/graph/program.h"
#include "kernels/tensor/tensor.h"

namespace weir {

class Engine;
class EvalContext;
class JoinedWork;
class Work;

// Where an input comes from. Exactly one of the three.
struct InputSource {
  // Host bytes in one or more pieces (slices of a message); dense, row-major.
  // For kString one piece of StringRef. They stay until the work has returned;
  // one that returns before it is done has copied them by then.
  DType dtype = DType::kInvalid;
  Dims dims;
  absl::InlinedVector<std::string_view, 1> pieces;
  // Or a tensor on the engine's device; the work is ordered after its writer.
  Tensor tensor;
  // Or an output of an earlier work, not yet done; kept until this work is.
  // A deferred producer of the same context is run first; of another context,
  // FAILED_PRECONDITION.
  std::shared_ptr<Work> producer;
  size_t producer_output = 0;
};

enum class OutputWish : uint8_t {
  kDrop,    // not wanted
  kInline,  // bytes in pinned host memory: Work::OutputBytes
  kKeep,    // a tensor on the device: Work::OutputTensor
};

// A timeline that the work moves when it is done. A failed work fails that
// value; one that was refused for want of room (CONTEXT_FULL,
// HOST_MEMORY_EXHAUSTED) before it had a place leaves it to the next attempt.
struct Signal {
  std::shared_ptr<Timeline> timeline;
  uint64_t value = 0;
};

// Belongs to the work until it is done; inputs are to be set anew for the next
// use.
struct WorkRequest {
  std::shared_ptr<const Program> program;
  // What the program was compiled from. Optional: with it a deferred work can
  // be joined with its neighbors at Flush.
  std::shared_ptr<const Graph> graph;
  absl::InlinedVector<InputSource, 4> inputs;  // as Program::inputs()
  absl::InlinedVector<OutputWish, 4> outputs;  // as Program::outputs();
                                               // empty: all kInline
  std::optional<EvalMode> mode;                // empty: the context's
  absl::InlinedVector<Point, 2> after;
  absl::InlinedVector<Signal, 1> signal;
  std::optional<uint64_t> seed;  // empty: the context's RNG
  Nanos deadline = kNoDeadline;  // not launched after it; on the CPU no step
                                 // begins after it
  std::string label;             // for errors and reports
};

// Whether a work ended so because nobody waited for it any more, which says
// nothing about the device.
inline bool GaveUp(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
}

// Callbacks run on the submitting thread, the context's executor, or a thread
// that launches or completes: they only note and post.
class WEIR_EXPORT WorkObserver {
 public:
  virtual ~WorkObserver() = default;
  // The call may return (state() says how far it came). Before or with OnDone.
  virtual void OnReturn(Work& work) = 0;
  // Its plan is there, and so the sizes of its outputs: an error ends the work
  // before anything is taken for it. At most once, on the submitting thread or
  // the executor's; not for a deferred work that runs joined with others.
  virtual absl::Status OnPlanned(Work&) { return absl::OkStatus(); }
  // It has its lane and memory, and goes to the stream now: its time in queues
  // is over. At most once, before OnDone, on the executor's thread; not for a
  // deferred work that runs joined with others.
  virtual void OnLaunch(Work&) {}
  // kCompleted or kError. The work may be reused or destroyed from here on.
  virtual void OnDone(Work& work) = 0;
};

class WEIR_EXPORT Work final : private StreamTask {
 public:
  Work();
  ~Work() override;  // REQUIRES: idle or done
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  WorkRequest request;

  WorkState state() const { return state_.load(std::memory_order_acquire); }
  bool done() const { return state() >= WorkState::kCompleted; }

  // Queued work is dropped and ends with CANCELLED. Launched work drains, and
  // then ends as it would have; on the CPU, where a thread would work for
  // nobody, it ends before its next step, and elsewhere one of many launches
  // before its next ones. Idempotent.
  void Cancel();
  bool cancelled() const { return cancelled_.load(); }

  // Lets go of the program and its plan, so that a work that is kept for its
  // next use keeps neither alive. REQUIRES: idle or done.
  void DropProgram() {
    request.program = nullptr;
    plan_ = nullptr;
  }

  // After OnReturn or OnDone.
  const absl::Status& status() const { return status_; }  // OK while pending
  const SyncReport& report() const { return report_; }
  uint64_t number() const { return number_; }  // in its context, from 1
  // Reached when the work is done; a dependant in any context may wait on it,
  // though it be deferred yet. Null if it was not accepted.
  Point point() const;
  EvalMode mode() const { return mode_; }
  // The request's, or what was drawn for it; 0 if it has none and its program
  // draws nothing.
  uint64_t seed() const { return seed_; }
  const std::shared_ptr<const Plan>& plan() const { return plan_; }

  // When done and OK. `i` indexes Program::outputs().
  const TensorMeta& OutputMeta(size_t i) const;             // kInline
  absl::Span<const std::byte> OutputBytes(size_t i) const;  // kInline
  const Tensor& OutputTensor(size_t i) const;               // kKeep; from
                                                            // kScheduled on
  // The memory behind all inline outputs, for a reply that outlives the work;
  // OutputBytes stays valid as long as the buffer lives.
  PinnedBuffer TakeOutputBuffer() { return std::move(output_buffer_); }

 private:
  friend class EvalContext;
  friend class JoinedWork;

  absl::Status Launch(Stream& stream) override;
  std::optional<absl::Status> Settle(const Completion& completion) override;
  void Complete(const Completion& completion) override;
  std::string Describe() const override;

  // Null before it was enqueued and once it is done: a context may hold works
  // that hold others of its own.
  std::shared_ptr<EvalContext> context() const;
  void SetContext(std::shared_ptr<EvalContext> context);
  void Advance(WorkState to);  // only forward
  void Return();               // OnReturn, once
  void Reset();

  // What has to happen next, driven by the context (eval_context.cc).
  enum class Stage : uint8_t {
    kIdle,
    kDeferred,
    kPlanning,   // its submitter has it, or a compile thread makes the plan
    kNeedsPlan,  // its inputs' shapes come from works before it
    kPlanned,    // waits for points
    kReady,      // takes a lane
    kLeased,     // takes memory, is launched
    kGrowing,    // memory is made for it, on the engine's allocator
    kStaging,    // large inputs are copied, on the engine's launcher
    kLaunched,
  };

  // Deferred, and nobody waits for it or for what it makes. REQUIRES: the
  // caller holds it, once.
  bool IsUnread(const std::shared_ptr<Work>& holder) const {
    return holder.use_count() == 1 && deferred_end_.use_count() == 1 &&
           request.signal.empty();
  }
  // Another thread prepares it, and brings it back.
  bool ElsewhereNow() const {
    return stage_ == Stage::kPlanning || stage_ == Stage::kGrowing ||
           stage_ == Stage::kStaging;
  }
  bool AnyCancelled() const;  // it, or a work that is joined in it
  // Why nobody waits for its result any more: CANCELLED, DEADLINE_EXCEEDED.
  absl::Status StillWanted() const;
  bool ReadsInline() const;
  bool ReturnsBeforeLaunch() const {
    return return_at_ < WorkState::kScheduled;
  }
  absl::Status ResolveInputs();  // shapes and host pointers for the plan
  // The call may return before there is a plan: the bytes are copied as they
  // are.
  absl::Status OwnInputs(PinnedPool& pool);
  // To where the plan wants them. Idempotent.
  absl::Status StageInputs(Engine& engine);
  // Whether that would keep a thread for long.
  bool StagesMuch(bool host_addressable) const;
  size_t ArenaBytes(bool host_addressable) const;
  // What the run needs and is there or quick to make (Device::quick_bytes):
  // false if something is missing. ReserveMemory takes it, and may take long.
  absl::StatusOr<bool> TakeMemoryAtHand(Engine& engine, Lane& lane);
  absl::Status ReserveMemory(Engine& engine, Lane& lane);
  absl::Status AssignMemory(Engine& engine, const Lane& lane);
  void AssignAddresses(bool host_addressable);
  size_t StagingBytes(bool host_addressable) const;
  bool Borrows(size_t i, bool host_addressable) const;
  bool Stages(bool host_addressable) const;        // some input is copied
  bool NeedsResults(bool host_addressable) const;  // in pinned memory
  // Empty while something that it waited for on the device is not settled.
  std::optional<absl::Status> DependencyStatus() const;
  void NoteDeviceError(const Completion& completion,
                       const absl::Status& status);

  mutable Mutex context_mu_;
  std::shared_ptr<EvalContext> context_ WEIR_GUARDED_BY(context_mu_);
  std::shared_ptr<Timeline> timeline_;  // the context's, with a place on it
  WorkObserver* observer_ = nullptr;
  std::shared_ptr<Work> self_;  // deferred works keep themselves until done
  // Of a work that was deferred: at 1 once it is done.
  std::shared_ptr<Timeline> deferred_end_;
  JoinedWork* joined_ = nullptr;  // of whose graph this is the work
  Work* queue_next_ = nullptr;    // in the context's queue
  Stage stage_ = Stage::kIdle;
  uint64_t plan_wait_ = 0;    // in the program cache, while kPlanning
  size_t launches_ = 0;       // in the driver's queue, once launched
  size_t pace_launches_ = 0;  // PlanRun's; 0: its thread may not wait
  uint64_t number_ = 0;
  EvalMode mode_ = EvalMode::kEager;
  uint64_t seed_ = 0;
  bool returned_ = false;
  WorkState return_at_ = WorkState::kCommitted;
  Atomic<WorkState> state_{WorkState::kNotEnqueued};
  Atomic<bool> cancelled_{false};
  absl::Status status_;
  SyncReport report_;

  std::shared_ptr<const Plan> plan_;
  absl::InlinedVector<HostTensor, 4> host_inputs_;
  // What it comes after, and was not reached when it became the head.
  absl::InlinedVector<HeldPoint, 4> points_;
  absl::InlinedVector<const void*, 8> addresses_;  // of the inputs
  absl::InlinedVector<Tensor, 2> kept_;            // per output, or none at all
  bool bytes_stay_ = false;  // the inputs', until the work is done
  bool staged_ = false;      // the inputs are where they have to be
  PinnedBuffer owned_inputs_;
  PinnedBuffer staging_;
  PinnedBuffer output_buffer_;
  const std::byte* output_bytes_ = nullptr;
  // In the lane's arena, one behind the other; the inputs since it was there.
  std::byte* device_inputs_ = nullptr;
  std::byte* device_outputs_ = nullptr;
  std::byte* arena_ = nullptr;
};

}  // namespace weir
