// Things that a stream uses after the call that enqueued the work returned, and
// that may serve another call once that work is done: a decoder's buffers,
// pinned staging. Each carries an event that tells. Bounded; waits for no work.
// Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"

namespace weir::cuda {

// A place on a stream.
class CudaEvent {
 public:
  CudaEvent() = default;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  ~CudaEvent() {
    if (event_ != nullptr) (void)cudaEventDestroy(event_);
  }

  absl::Status Make() {
    return WEIR_CUDA_CALL(
        cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  absl::Status Record(cudaStream_t stream) {
    return WEIR_CUDA_CALL(cudaEventRecord(event_, stream));
  }
  absl::StatusOr<bool> Reached() const {
    const cudaError_t queried = cudaEventQuery(event_);
    if (queried == cudaErrorNotReady) return false;
    WEIR_RETURN_IF_ERROR(CudaStatus(queried, "cudaEventQuery"));
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Tests have an `Event` of their own.
template <typename T, typename Event = CudaEvent>
class InFlightPool {
 public:
  struct Item {
    T value;
    size_t bytes = 0;  // that it counts with
    Nanos used_at = 0;
    Event done;
  };

  explicit InFlightPool(size_t max, size_t max_bytes = SIZE_MAX)
      : max_(max), max_bytes_(max_bytes) {}

  // An item whose work is done and that `fits`, the latest used first, else a
  // new one from `make`, which counts with `bytes`. If `max` exist by then, or
  // `max_bytes` with it, those that do not fit make room; RESOURCE_EXHAUSTED
  // where too many are in flight.
  template <typename Fits, typename Make>
  absl::StatusOr<std::unique_ptr<Item>> Take(const Fits& fits, const Make& make,
                                             size_t bytes = 0) {
    std::vector<std::unique_ptr<Item>> unfit;  // destroyed outside the lock
    {
      MutexLock lock(&mu_);
      for (size_t i = items_.size(); i-- > 0;) {
        if (!fits(items_[i]->value)) continue;
        WEIR_ASSIGN_OR_RETURN(const bool reached, items_[i]->done.Reached());
        if (reached) return Remove(i);
      }
      for (size_t i = 0; i < items_.size() && Full(bytes);) {
        WEIR_ASSIGN_OR_RETURN(const bool reached, items_[i]->done.Reached());
        if (!reached || fits(items_[i]->value)) {
          ++i;
          continue;
        }
        unfit.push_back(Remove(i));
        Forget(unfit.back()->bytes);
      }
      if (Full(bytes)) {
        return WithRetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                  made_, " decoding works with ", made_bytes_,
                                  " bytes of staging are in flight")),
                              absl::Milliseconds(10));
      }
      ++made_;
      made_bytes_ += bytes;
    }
    unfit.clear();
    auto item = std::make_unique<Item>();
    item->bytes = bytes;
    absl::Status status = make(&item->value);
    if (status.ok()) status = item->done.Make();
    if (!status.ok()) {
      MutexLock lock(&mu_);
      Forget(bytes);
      return status;
    }
    return item;
  }

  // The item serves again when the work that `stream` has now is done.
  absl::Status Return(std::unique_ptr<Item> item, cudaStream_t stream) {
    const absl::Status status = item->done.Record(stream);
    item->used_at = NowNanos();
    MutexLock lock(&mu_);
    items_.push_back(std::move(item));
    return status;
  }

  // Frees one item that is done and was used before `before`; false if there is
  // none. May wait for the device.
  bool TrimOne(Nanos before) {
    std::unique_ptr<Item> old;  // destroyed outside the lock
    MutexLock lock(&mu_);
    // The oldest are in front.
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i]->used_at >= before) return false;
      const absl::StatusOr<bool> reached = items_[i]->done.Reached();
      if (!reached.ok() || !*reached) continue;
      old = Remove(i);
      Forget(old->bytes);
      return true;
    }
    return false;
  }

  size_t size() const {
    MutexLock lock(&mu_);
    return made_;
  }
  size_t bytes() const {
    MutexLock lock(&mu_);
    return made_bytes_;
  }

 private:
  bool Full(size_t bytes) const WEIR_REQUIRES(mu_) {
    return made_ >= max_ || bytes > max_bytes_ ||
           made_bytes_ > max_bytes_ - bytes;
  }
  std::unique_ptr<Item> Remove(size_t i) WEIR_REQUIRES(mu_) {
    std::unique_ptr<Item> item = std::move(items_[i]);
    items_.erase(items_.begin() + static_cast<ptrdiff_t>(i));
    return item;
  }
  void Forget(size_t bytes) WEIR_REQUIRES(mu_) {
    --made_;
    made_bytes_ -= bytes;
  }

  const size_t max_;
  const size_t max_bytes_;
  mutable Mutex mu_;
  size_t made_ WEIR_GUARDED_BY(mu_) = 0;
  size_t made_bytes_ WEIR_GUARDED_BY(mu_) = 0;
  // In the order in which they were returned.
  std::vector<std::unique_ptr<Item>> items_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::cuda
