#include "server/spaces/kept_tensor.h"

#include <utility>

#include "kernels/base/error_info.h"

namespace weir {

void KeptTensor::Await(std::shared_ptr<Work> work, size_t output, Point made) {
  MutexLock lock(&mu_);
  made_ = std::move(made);
  maker_ = std::move(work);
  output_ = output;
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
  made = std::move(made_);
  tensor_ = std::move(tensor);
  return lent_;
}

bool KeptTensor::Failed(const absl::Status& status) {
  std::shared_ptr<Work> maker;
  Point made;
  MutexLock lock(&mu_);
  maker = std::move(maker_);
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
  if (maker_ != nullptr) {
    source->producer = maker_;
    source->producer_output = output_;
    lent_ = true;
  } else {
    source->tensor = tensor_;
  }
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
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace weir
