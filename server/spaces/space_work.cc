#include "server/spaces/space_work.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/graph/graph_bytes.h"
#include "kernels/graph/program.h"
#include "server/spaces/space.h"

namespace weir {

namespace {

// About what is kept of an input, of a moment that is waited for, and of one
// that is signaled, beside the bytes: in the request, its dependencies and what
// they hold.
constexpr uint64_t kInputRoom = 384;
constexpr uint64_t kAfterRoom = 512;
constexpr uint64_t kSignalRoom = 192;

// That came with it and stay.
uint64_t BytesIn(const WorkRequest& request) {
  uint64_t bytes = kInputRoom * request.inputs.size() +
                   kAfterRoom * request.after.size() +
                   kSignalRoom * request.signal.size();
  if (request.call_sites != nullptr) bytes += request.call_sites->bytes();
  if (request.graph != nullptr) bytes += GraphBytes(*request.graph);
  for (const InputSource& input : request.inputs) {
    for (const std::string_view piece : input.pieces) bytes += piece.size();
  }
  return bytes;
}

absl::Status IsElsewhere(KeptTensor& tensor) {
  return WithReason(
      absl::FailedPreconditionError(
          absl::StrCat("it is on ", DeviceName(tensor.engine().device().info()),
                       "; evaluate there, or copy it (tensor_copy)")),
      "WRONG_DEVICE");
}

}  // namespace

absl::StatusOr<std::shared_ptr<SpaceWork>> SpaceWork::Create(
    std::shared_ptr<Space> space, Engine& engine, std::string owner) {
  WEIR_ASSIGN_OR_RETURN(Account::Share share,
                        space->account().Take(Holding::kWorks));
  return std::shared_ptr<SpaceWork>(new SpaceWork(
      std::move(space), std::move(share), &engine.pinned(), std::move(owner)));
}

SpaceWork::SpaceWork(std::shared_ptr<Space> space, Account::Share share,
                     const PinnedPool* pool, std::string owner)
    : space_(std::move(space)),
      share_(std::move(share)),
      owner_(std::move(owner)),
      results_(&work_, pool) {
  work_.request.owner = owner_;
}

absl::Status SpaceWork::Read(InputSource* source,
                             std::shared_ptr<KeptTensor> tensor,
                             const Engine& engine) {
  if (&tensor->engine() != &engine) return IsElsewhere(*tensor);
  WEIR_RETURN_IF_ERROR(tensor->FillSource(source));
  inputs_.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::Status SpaceWork::Keep(size_t index, uint64_t number, Engine& engine,
                             const SymbolicShape& said) {
  const ValueDecl& declared = work_.request.program->outputs()[index];
  if (declared.dtype == DType::kString) {
    return absl::UnimplementedError(
        "text cannot be kept on the server; ask for it inline");
  }
  WEIR_RETURN_IF_ERROR(CheckOnlyOne(number));
  WEIR_ASSIGN_OR_RETURN(TensorClaim claim, space_->TakeTensor(number));
  WEIR_ASSIGN_OR_RETURN(Account::Share share,
                        space_->account().Take(Holding::kTensors));
  made_.push_back(
      {.index = index,
       .tensor = std::make_shared<KeptTensor>(
           &engine, declared.dtype, said.has_value() ? said : declared.shape,
           std::move(share)),
       .number = number,
       .before = nullptr});
  claims_.push_back(std::move(claim));
  return absl::OkStatus();
}

absl::Status SpaceWork::WriteInto(size_t index, uint64_t number, Engine& engine,
                                  const SymbolicShape& said) {
  const ValueDecl& declared = work_.request.program->outputs()[index];
  const SymbolicShape& shape = said.has_value() ? said : declared.shape;
  WEIR_RETURN_IF_ERROR(CheckOnlyOne(number));
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<KeptTensor> before,
                        space_->tensors().Find(number));
  if (&before->engine() != &engine) return IsElsewhere(*before);
  WEIR_RETURN_IF_ERROR(before->CheckFits(declared.dtype, shape));
  std::shared_ptr<KeptTensor> next = before->Rewrite(shape);
  made_.push_back({.index = index,
                   .tensor = std::move(next),
                   .number = number,
                   .before = std::move(before)});
  claims_.emplace_back();
  return absl::OkStatus();
}

absl::Status SpaceWork::CheckOnlyOne(uint64_t number) const {
  for (const Made& other : made_) {
    if (other.number == number) {
      return absl::InvalidArgumentError(
          absl::StrCat("two outputs are to be tensor ", number));
    }
  }
  return absl::OkStatus();
}

absl::Status SpaceWork::HoldProgram() {
  WEIR_ASSIGN_OR_RETURN(program_bytes_,
                        space_->HoldProgram(*work_.request.program));
  return absl::OkStatus();
}

absl::Status SpaceWork::SetNumber(uint64_t number) {
  WEIR_ASSIGN_OR_RETURN(claim_, space_->works().Take(number));
  number_ = number;
  work_.request.tag = number;
  return absl::OkStatus();
}

absl::Status SpaceWork::Submit(Activation& activation, Caller& caller,
                               Until until) {
  // Its end may come on another thread before this returns.
  const std::shared_ptr<SpaceWork> stays = shared_from_this();
  const std::vector<Made> made = made_;
  WEIR_ASSIGN_OR_RETURN(
      input_bytes_,
      space_->account().Take(Holding::kInputBytes, BytesIn(work_.request)));
  if (!space_->NoteWork(this)) return SpaceNotFound(space_->id());
  caller_ = &caller;
  until_ = until;
  self_ = stays;
  end_ = std::make_shared<Timeline>(
      number_ == 0 ? "end of its work" : absl::StrCat("end of work ", number_));
  const Point end = {end_, 1};
  std::shared_ptr<Work> wanted = IsDeferred() ? WantedWork() : SharedWork();
  for (const Made& each : made) {
    each.tensor->Await(wanted, each.index, end);
  }
  std::shared_ptr<KeptWork> kept;
  if (claim_) {
    kept = std::make_shared<KeptWork>(&activation.context().engine().device(),
                                      SharedWork(), end);
    kept_ = kept;
  }
  if (IsDeferred()) {
    // Whoever needs it brings a deadline.
    work_.request.deadline = kNoDeadline;
    activation.Defer(std::move(wanted), this);
    RunOnceEndIsWanted();
  } else {
    wanted = nullptr;
    activation.Submit(&work_, this);
  }
  // A close that came before the work was submitted has called off nothing.
  if (space_->closed()) work_.Cancel();
  if (refused_) return work_.status();
  for (size_t i = 0; i < made.size(); ++i) {
    const Made& each = made[i];
    if (each.before == nullptr) {
      claims_[i].Fill(each.tensor);
    } else {
      // Others may have written into it meanwhile; they came first.
      const auto replaced = space_->tensors().ReplaceIf(
          each.number,
          [&](const KeptTensor& now) {
            return now.SharesNumberWith(*each.before);
          },
          each.tensor);
      if (replaced != nullptr) replaced->Freed();
    }
  }
  if (claim_) claim_.Fill(std::move(kept));
  return absl::OkStatus();
}

std::shared_ptr<Work> SpaceWork::WantedWork() {
  // This object goes with the last of them, not with the last that asks whether
  // there are any.
  return {&work_, [self = shared_from_this()](Work*) mutable { self.reset(); }};
}

bool SpaceWork::IsDeferred() const {
  return work_.request.mode == EvalMode::kDeferred &&
         !absl::c_linear_search(work_.request.outputs, OutputWish::kInline);
}

// Its own point is held by those who want it.
void SpaceWork::RunOnceEndIsWanted() {
  const Point point = work_.point();
  if (point.is_null()) return;  // it was refused
  end_->OnWanted(1, [weak = std::weak_ptr<Timeline>(point.timeline)] {
    if (const auto timeline = HoldIfThere(weak)) timeline->Want(1);
  });
}

void SpaceWork::OnReturn(Work& work) {
  if (until_ != Until::kReturned || work.point().is_null()) return;
  // Of one that has ended the caller is told when all of it is settled.
  if (!work.done()) TellReturned();
}

void SpaceWork::TellReturned() {
  returned_ = {work_.status(), work_.report(), work_.plan()};
  told_ = true;
  caller_->Ready();
}

absl::Status SpaceWork::OnPlanned(Work& work) {
  if (plan_check_ != nullptr) {
    WEIR_RETURN_IF_ERROR(plan_check_(*work.plan()));
  }
  for (const Made& each : made_) {
    WEIR_RETURN_IF_ERROR(Charge(each, work.plan()->outputs()[each.index].meta));
  }
  return until_ == Until::kDone ? caller_->Planned(work) : absl::OkStatus();
}

absl::Status SpaceWork::OnJoined(Work&,
                                 absl::Span<const TensorMeta* const> kept) {
  for (const Made& each : made_) {
    const TensorMeta* const meta = kept[each.index];
    if (meta != nullptr) WEIR_RETURN_IF_ERROR(Charge(each, *meta));
  }
  return absl::OkStatus();
}

absl::Status SpaceWork::Charge(const Made& made, const TensorMeta& meta) {
  made.tensor->Charge({});  // of a run that was joined and failed
  Account::Share bytes;
  if (made.before != nullptr) {
    WEIR_RETURN_IF_ERROR(
        made.before->CheckFits(meta.dtype, ToSymbolic(meta.dims)));
    bytes = made.before->TakeRoom();
  }
  if (bytes.amount() != meta.bytes) {
    WEIR_ASSIGN_OR_RETURN(
        bytes, space_->account().Take(Holding::kTensorBytes, meta.bytes));
  }
  made.tensor->Charge(std::move(bytes));
  return absl::OkStatus();
}

void SpaceWork::OnDone(Work& work) {
  const std::shared_ptr<SpaceWork> self = std::move(self_);
  // Without a place in its context's order it was not accepted.
  const bool refused = work.point().is_null();
  if (refused) refused_ = true;
  space_->ForgetWork(this);
  bool lent = false;
  for (Made& each : made_) {
    each.before = nullptr;
    lent |= work.status().ok()
                ? each.tensor->Made(work.OutputTensor(each.index))
                : each.tensor->Failed(work.status());
  }
  if (!lent) made_.clear();
  inputs_.clear();
  work.request.inputs.clear();
  work.request.graph = nullptr;
  work.request.call_sites = nullptr;
  const std::shared_ptr<KeptWork> kept = std::move(kept_);
  if (kept != nullptr) {
    kept->Ended(work);
    if (!refused) space_->NoteDone(number_, kept);
  }
  share_ = {};
  input_bytes_ = {};
  program_bytes_ = nullptr;
  end_->Advance(1, work.status()).IgnoreError();
  if (kept != nullptr) kept->TellEnded();
  if (refused || told_) return;
  if (until_ == Until::kReturned) return TellReturned();
  caller_->Ready();
}

}  // namespace weir
