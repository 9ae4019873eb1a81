// One evaluation in a space: the work, the tensors that it reads and makes, and
// its share of what the space may hold. It is on its own once it is submitted:
// whoever asked for it is told when the mode says so, and it goes on until it
// is done, when its tensors get their memory or their failure.
//
// Belongs to whoever makes it until Submit; then it is thread-safe, but for
// work(), which is as Work has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/eval/eval_context.h"
#include "kernels/eval/sync_report.h"
#include "kernels/eval/work.h"
#include "kernels/graph/plan.h"
#include "server/evaluation/work_results.h"
#include "server/spaces/account.h"
#include "server/spaces/kept_tensor.h"
#include "server/spaces/kept_work.h"
#include "server/spaces/number_table.h"

namespace weir {

class Space;

class SpaceWork final : private WorkObserver,
                        public std::enable_shared_from_this<SpaceWork> {
 public:
  // In `space`, which it keeps, on `engine`, for `owner` (WorkRequest::owner).
  // RESOURCE_EXHAUSTED, reason SPACE_QUOTA, where the space has too many works
  // that are not done.
  static absl::StatusOr<std::shared_ptr<SpaceWork>> Create(
      std::shared_ptr<Space> space, Engine& engine, std::string owner);

  // -- Before Submit.

  WorkRequest& request() { return work_.request; }
  // `source`, an input of the request, is this one. Errors as
  // KeptTensor::FillSource, and FAILED_PRECONDITION, reason WRONG_DEVICE, if it
  // is on another engine than `engine`.
  absl::Status Read(InputSource* source, std::shared_ptr<KeptTensor> tensor,
                    const Engine& engine);
  // Output `index`, for which the request says kKeep, is to be kept under this
  // number, which may be that of a tensor that failed. Errors as
  // NumberTable::Take and Account::Take; UNIMPLEMENTED for text;
  // INVALID_ARGUMENT if two outputs are to have the number. `said` is its
  // shape, if the program says less of it. REQUIRES: request().program.
  absl::Status Keep(size_t index, uint64_t number, Engine& engine,
                    const SymbolicShape& said = std::nullopt);
  // The same for a number that stands for a tensor of this engine: from when
  // the work is accepted it stands for what the work makes, and whoever was
  // accepted before reads what it had. NOT_FOUND if there is none;
  // FAILED_PRECONDITION, reason TENSOR_MISMATCH, if it is known to be of
  // another type or shape (what is found later fails the work), reason
  // WRONG_DEVICE on another engine; INVALID_ARGUMENT as above.
  absl::Status WriteInto(size_t index, uint64_t number, Engine& engine,
                         const SymbolicShape& said = std::nullopt);
  // Its program, a caller's, counts. Errors as Space::HoldProgram.
  absl::Status HoldProgram();
  // What becomes of it is to be found under this number, as long as it is one
  // of the space's newest. Errors as NumberTable::Take.
  absl::Status SetNumber(uint64_t number);
  uint64_t number() const { return number_; }  // 0: it has none

  // An error ends it, once it has a plan and before it runs.
  using PlanCheck = absl::AnyInvocable<absl::Status(const Plan& plan)>;
  void set_plan_check(PlanCheck check) { plan_check_ = std::move(check); }

  // Whoever asked for it.
  class Caller {
   public:
    // The sizes of its outputs are known: an error ends it. Before Ready, on
    // any thread; not if the caller waits for its return alone.
    virtual absl::Status Planned(const Work&) { return absl::OkStatus(); }
    // What the caller waits for is there. Once, on any thread, perhaps inside
    // Submit, under locks: it only notes and posts. The last that it is told.
    virtual void Ready() = 0;

   protected:
    ~Caller() = default;
  };
  enum class Until : uint8_t {
    kReturned,  // as the work's mode has it
    kDone,
  };

  // Once. An error says that it was not accepted (for want of room, in its
  // context or for its inputs in the space's quota, or as the space was
  // closed): then its numbers stand for nothing, and the caller is told
  // nothing. Otherwise they stand for what becomes of it.
  //
  // Under DEFERRED it waits in its context until what it makes is wanted
  // (Activation::Defer), and has no deadline: the numbers of its tensors want
  // it, and works that read them; its own number does as soon as somebody waits
  // for it. One with an output that is inline is read, and so is not deferred.
  absl::Status Submit(Activation& activation, Caller& caller, Until until);

  // -- After it.

  const Work& work() const { return work_; }
  void Cancel() { work_.Cancel(); }

  // What was known when a caller that waits for that alone was told. For it,
  // since then.
  struct Returned {
    absl::Status status;
    SyncReport report;
    std::shared_ptr<const Plan> plan;  // null: it is not made yet
  };
  const Returned& returned() const { return returned_; }

  // Of the done work: for the caller that waits for its end.
  WorkResults& results() { return results_; }

 private:
  // An output that is kept.
  struct Made {
    size_t index = 0;
    std::shared_ptr<KeptTensor> tensor;
    uint64_t number = 0;
    // What the number stood for, if it is written into.
    std::shared_ptr<KeptTensor> before;
  };
  using TensorClaim = NumberTable<KeptTensor>::Claim;

  SpaceWork(std::shared_ptr<Space> space, Account::Share share,
            const PinnedPool* pool, std::string owner);

  // The work, which keeps this object.
  std::shared_ptr<Work> SharedWork() { return {shared_from_this(), &work_}; }
  // The same, with counts of its own: who holds this wants what it makes.
  std::shared_ptr<Work> WantedWork();
  bool IsDeferred() const;
  void RunOnceEndIsWanted();
  // What it makes counts from here on.
  absl::Status Charge(const Made& made, const TensorMeta& meta);
  // INVALID_ARGUMENT if another output is to have the number, too.
  absl::Status CheckOnlyOne(uint64_t number) const;

  void TellReturned();

  // WorkObserver.
  void OnReturn(Work& work) override;
  absl::Status OnPlanned(Work& work) override;
  absl::Status OnJoined(Work& work,
                        absl::Span<const TensorMeta* const> kept) override;
  void OnDone(Work& work) override;

  const std::shared_ptr<Space> space_;
  Account::Share share_;  // until it is done
  Account::Share input_bytes_;
  std::shared_ptr<const Account::Share> program_bytes_;
  const std::string owner_;
  Work work_;
  WorkResults results_;
  Returned returned_;
  // At 1 when all that the space has of it is settled, which the work's own
  // point is not: it is reached before.
  std::shared_ptr<Timeline> end_;  // from Submit on
  std::vector<std::shared_ptr<KeptTensor>> inputs_;
  // Until this object goes, if works that read some of them hold it: so long
  // the memory of all stays, whatever became of their numbers, and they count.
  std::vector<Made> made_;
  std::vector<TensorClaim> claims_;  // as made_, until Submit
  PlanCheck plan_check_;             // null: none
  NumberTable<KeptWork>::Claim claim_;
  uint64_t number_ = 0;
  std::shared_ptr<KeptWork> kept_;  // null: it has no number
  Caller* caller_ = nullptr;        // until it is told
  Until until_ = Until::kDone;
  bool told_ = false;                // that it has returned
  bool refused_ = false;             // inside Submit
  std::shared_ptr<SpaceWork> self_;  // from Submit to its end
};

}  // namespace weir
