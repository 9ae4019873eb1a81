#include "server/spaces/kept_tensor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "kernels/tensor/dtype.h"

namespace weir {
namespace {

absl::Status NotWritten() {
  return WithReason(absl::FailedPreconditionError(
                        "it is allocated, and nothing was written into it yet"),
                    "TENSOR_NOT_WRITTEN");
}

absl::Status NotCommitted() {
  return WithReason(
      absl::FailedPreconditionError("it is allocated and not committed: it may "
                                    "be written; read it after tensor_commit"),
      "TENSOR_NOT_COMMITTED");
}

absl::Status MakerFailed(const absl::Status& failure) {
  return Inherited(failure, "the work that was to make it has failed: ");
}

bool SurelyDiffer(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_value() || !b.has_value()) return false;
  if (a->size() != b->size()) return true;
  for (size_t i = 0; i < a->size(); ++i) {
    if ((*a)[i].SurelyDiffers((*b)[i])) return true;
  }
  return false;
}

// What two shapes that do not differ say together.
SymbolicShape Both(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_value()) return b;
  if (!b.has_value() || a->size() != b->size()) return a;
  SymbolicDims both = *a;
  for (size_t i = 0; i < both.size(); ++i) {
    if (!both[i].known()) both[i] = (*b)[i];
  }
  return both;
}

}  // namespace

std::shared_ptr<KeptTensor> KeptTensor::Allocate(Engine* engine, DType dtype,
                                                 const Dims& dims,
                                                 Account::Share share,
                                                 Account::Share bytes) {
  auto room = std::make_shared<KeptTensor>(engine, dtype, ToSymbolic(dims),
                                           std::move(share));
  room->uncommitted_ = std::make_shared<Atomic<bool>>(true);
  room->Charge(std::move(bytes));
  return room;
}

std::shared_ptr<KeptTensor> KeptTensor::Rewrite(
    const SymbolicShape& declared) const {
  std::shared_ptr<KeptTensor> next(
      new KeptTensor(engine_, dtype_, Both(shape(), declared), share_));
  next->uncommitted_ = uncommitted_;
  return next;
}

void KeptTensor::Await(std::shared_ptr<Work> work, size_t output, Point made) {
  MutexLock lock(&mu_);
  made_ = std::move(made);
  maker_ = std::move(work);
  output_ = output;
}

void KeptTensor::Freed() {
  std::shared_ptr<Work> maker;  // goes outside the lock
  MutexLock lock(&mu_);
  maker = std::move(maker_);
  freed_maker_ = maker;
}

std::shared_ptr<Work> KeptTensor::Maker() const {
  return maker_ != nullptr ? maker_ : HoldIfThere(freed_maker_);
}

std::shared_ptr<const void> KeptTensor::Hold() const {
  MutexLock lock(&mu_);
  return Maker();
}

void KeptTensor::Charge(Account::Share bytes) {
  MutexLock lock(&mu_);
  bytes_ = std::move(bytes);
}

// A maker that was let go of makes it nevertheless.
bool KeptTensor::IsRoom() const {
  return made_.is_null() && !tensor_.valid() && failure_.ok();
}

Account::Share KeptTensor::TakeRoom() {
  MutexLock lock(&mu_);
  return IsRoom() ? std::move(bytes_) : Account::Share();
}

absl::Status KeptTensor::CheckWritten() const {
  MutexLock lock(&mu_);
  return IsRoom() ? NotWritten() : absl::OkStatus();
}

absl::Status KeptTensor::Commit() {
  absl::Status status = CheckWritten();
  if (status.ok()) status = failure();
  if (!status.ok()) return status;
  if (uncommitted_ == nullptr || !uncommitted_->exchange(false)) {
    return WithReason(absl::FailedPreconditionError(
                          "it is committed, or was never to be: only what "
                          "tensor_allocate made is, once"),
                      "TENSOR_COMMITTED");
  }
  return absl::OkStatus();
}

absl::Status KeptTensor::CheckFits(DType dtype,
                                   const SymbolicShape& shape) const {
  const SymbolicShape own = this->shape();
  if (dtype == dtype_ && !SurelyDiffer(shape, own)) return absl::OkStatus();
  const auto text = [](DType type, const SymbolicShape& dims) {
    return absl::StrCat(
        AbslView(DTypeName(type)),
        dims.has_value() ? absl::StrCat(" ", ShapeString(dims)) : "");
  };
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "it is ", text(dtype_, own), ", and what is to be written into it ",
          text(dtype, shape), "; keep that under another number")),
      "TENSOR_MISMATCH");
}

bool KeptTensor::Made(Tensor tensor) {
  // End, if they do, outside the lock.
  std::shared_ptr<Work> maker;
  Point made;
  MutexLock lock(&mu_);
  maker = std::move(maker_);
  freed_maker_.reset();
  made = std::move(made_);
  tensor_ = std::move(tensor);
  return lent_;
}

bool KeptTensor::Failed(const absl::Status& status) {
  std::shared_ptr<Work> maker;
  Point made;
  MutexLock lock(&mu_);
  maker = std::move(maker_);
  freed_maker_.reset();
  made = std::move(made_);
  failure_ = status;
  bytes_ = {};
  return lent_;
}

absl::Status KeptTensor::CheckReadable() const {
  if (uncommitted()) return NotCommitted();
  const absl::Status failed = failure();
  return failed.ok() ? failed : MakerFailed(failed);
}

absl::Status KeptTensor::FillSource(InputSource* source) const {
  if (uncommitted()) return NotCommitted();
  MutexLock lock(&mu_);
  if (!failure_.ok()) return MakerFailed(failure_);
  if (tensor_.valid()) {
    source->tensor = tensor_;
    return absl::OkStatus();
  }
  source->producer = Maker();
  if (source->producer == nullptr) {
    return absl::CancelledError("it was freed, and so never made");
  }
  source->producer_output = output_;
  lent_ = true;
  return absl::OkStatus();
}

uint64_t KeptTensor::bytes() const {
  MutexLock lock(&mu_);
  return bytes_.amount();
}

SymbolicShape KeptTensor::shape() const {
  const std::optional<Dims> made = dims();
  return made.has_value() ? ToSymbolic(*made) : declared_;
}

std::optional<Dims> KeptTensor::dims() const {
  MutexLock lock(&mu_);
  if (!tensor_.valid()) return std::nullopt;
  return tensor_.spec().dims;
}

Tensor KeptTensor::tensor() const {
  MutexLock lock(&mu_);
  return tensor_;
}

Point KeptTensor::made() const {
  MutexLock lock(&mu_);
  return made_;
}

absl::Status KeptTensor::failure() const {
  std::shared_ptr<Work> maker;  // goes outside the lock
  {
    MutexLock lock(&mu_);
    maker = Maker();
    if (maker == nullptr) return failure_;
  }
  // Readers on the device have its failure from there, and others from its end,
  // before all of it is settled.
  const Point end = maker->point();
  const Point there = end.OnDevice(&engine_->device());
  for (const Point* const point : {&there, &end}) {
    const auto outcome = point->Outcome();
    if (outcome.has_value() && !outcome->ok()) return *outcome;
  }
  return absl::OkStatus();
}

}  // namespace weir
