#include "server/spaces/kept_tensor.h"

#include <utility>

#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"

namespace weir {

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

absl::Status KeptTensor::FillSource(InputSource* source) const {
  MutexLock lock(&mu_);
  if (!failure_.ok()) {
    return Inherited(failure_, "the work that was to make it has failed: ");
  }
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
