#include "server/spaces/kept_tensor.h"

#include <utility>

#include "kernels/base/error_info.h"

namespace weir {

void KeptTensor::Await(std::shared_ptr<Work> work, size_t output) {
  MutexLock lock(&mu_);
  maker_ = std::move(work);
  output_ = output;
}

void KeptTensor::Made(Tensor tensor) {
  std::shared_ptr<Work> maker;  // ends, if it does, outside the lock
  MutexLock lock(&mu_);
  maker = std::move(maker_);
  tensor_ = std::move(tensor);
}

void KeptTensor::Failed(const absl::Status& status) {
  std::shared_ptr<Work> maker;
  MutexLock lock(&mu_);
  maker = std::move(maker_);
  failure_ = status;
  bytes_ = {};
}

absl::Status KeptTensor::FillSource(InputSource* source) const {
  MutexLock lock(&mu_);
  if (!failure_.ok()) {
    return Inherited(failure_, "the work that was to make it has failed: ");
  }
  if (maker_ != nullptr) {
    source->producer = maker_;
    source->producer_output = output_;
  } else {
    source->tensor = tensor_;
  }
  return absl::OkStatus();
}

std::optional<Dims> KeptTensor::dims() const {
  MutexLock lock(&mu_);
  if (!tensor_.valid()) return std::nullopt;
  return tensor_.spec().dims;
}

Point KeptTensor::written() const {
  MutexLock lock(&mu_);
  return maker_ == nullptr ? Point() : maker_->point();
}

absl::Status KeptTensor::failure() const {
  MutexLock lock(&mu_);
  return failure_;
}

}  // namespace weir
