// The evaluation of a call in a space: into its context, which may be in use,
// to the work's return or its end, and out again before the call is answered.
// The work goes on without it.
//
// Belongs to its call, and is used on the call's I/O thread; ends before the
// call is answered.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/work.h"
#include "server/rpc/server_call.h"
#include "server/services/context_entry.h"
#include "server/spaces/space.h"
#include "server/spaces/space_work.h"

namespace weir {

// Where a call evaluates.
struct SpacePlace {
  std::shared_ptr<Space> space;  // the call has a SpaceUse of it
  Engine* engine = nullptr;
  std::shared_ptr<EvalContext> context;  // null: one of the call's own
  bool queue = false;  // for the context, if another handler is in it
};

class SpaceEvaluation final : private SpaceWork::Caller {
 public:
  using Then = void (*)(absl::Status status, void* arg);
  using CheckPlanned = absl::Status (*)(const Work& work, const void* arg);

  // Errors as SpaceWork::Create. The call outlives it.
  static absl::StatusOr<std::unique_ptr<SpaceEvaluation>> Create(
      ServerCall* call, const SpacePlace& place);
  ~SpaceEvaluation() = default;
  SpaceEvaluation(const SpaceEvaluation&) = delete;
  SpaceEvaluation& operator=(const SpaceEvaluation&) = delete;

  // To be filled before Start.
  SpaceWork& space_work() { return *work_; }

  // Once. `then(status, arg)` runs once, on the I/O thread, perhaps inside,
  // when what `until` says is there, with what became of the work so far, or
  // when it was not accepted; until then nobody else may resume or answer the
  // call. `check(work, arg)` may refuse the planned work: only of a call that
  // waits for its end, on any thread.
  void Start(SpaceWork::Until until, CheckPlanned check, Then then, void* arg);

  // -- From then on.

  // False: it was not accepted, and nothing else may be asked for.
  bool accepted() const { return accepted_; }
  const Work& work() const { return work_->work(); }
  bool awaited_end() const { return until_ == SpaceWork::Until::kDone; }
  const SyncReport& report() const {
    return awaited_end() ? work().report() : work_->returned().report;
  }
  // Null if it was not made by then.
  const Plan* plan() const {
    return awaited_end() ? work().plan().get() : work_->returned().plan.get();
  }
  WorkResults& results() { return work_->results(); }

 private:
  SpaceEvaluation(ServerCall* call, const SpacePlace& place,
                  std::shared_ptr<SpaceWork> work)
      : call_(call), place_(place), work_(std::move(work)), entry_(call) {}

  void Entered(absl::StatusOr<Activation> activation);
  void Finish(absl::Status status);

  // SpaceWork::Caller.
  absl::Status Planned(const Work& work) override { return check_(work, arg_); }
  void Ready() override;

  ServerCall* const call_;
  const SpacePlace place_;
  const std::shared_ptr<SpaceWork> work_;
  SpaceWork::Until until_ = SpaceWork::Until::kDone;
  CheckPlanned check_ = nullptr;
  Then then_ = nullptr;
  void* arg_ = nullptr;
  ContextEntry entry_;
  absl::StatusOr<Activation> activation_ = Activation();
  bool accepted_ = false;
  Account::Share wait_;  // of a call that waits for the end
};

}  // namespace weir
