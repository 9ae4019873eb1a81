// Things that a stream uses after the call that enqueued the work returned, and
// that may serve another call once that work is done: a decoder's buffers,
// pinned staging. Each carries an event that tells. Bounded; never waits.
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
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"

namespace weir::cuda {

template <typename T>
class InFlightPool {
 public:
  struct Item {
    T value;
    size_t bytes = 0;  // that it counts with
    cudaEvent_t done = nullptr;
    ~Item() {
      if (done != nullptr) (void)cudaEventDestroy(done);
    }
  };

  explicit InFlightPool(size_t max, size_t max_bytes = SIZE_MAX)
      : max_(max), max_bytes_(max_bytes) {}

  // An item whose work is done and that `fits`, else a new one from `make`,
  // which counts with `bytes`. RESOURCE_EXHAUSTED when `max` are in flight, or
  // `max_bytes` with it.
  template <typename Fits, typename Make>
  absl::StatusOr<std::unique_ptr<Item>> Take(const Fits& fits, const Make& make,
                                             size_t bytes = 0) {
    std::vector<std::unique_ptr<Item>> unfit;  // destroyed outside the lock
    {
      MutexLock lock(&mu_);
      for (size_t i = 0; i < items_.size() && (unfit.empty() || Full(bytes));) {
        const cudaError_t queried = cudaEventQuery(items_[i]->done);
        if (queried == cudaErrorNotReady) {
          ++i;
          continue;
        }
        WEIR_RETURN_IF_ERROR(CudaStatus(queried, "cudaEventQuery"));
        std::swap(items_[i], items_.back());
        std::unique_ptr<Item> item = std::move(items_.back());
        items_.pop_back();
        if (fits(item->value)) return item;
        --made_;
        made_bytes_ -= item->bytes;
        unfit.push_back(std::move(item));
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
    if (status.ok()) {
      status = WEIR_CUDA_CALL(
          cudaEventCreateWithFlags(&item->done, cudaEventDisableTiming));
    }
    if (!status.ok()) {
      MutexLock lock(&mu_);
      --made_;
      made_bytes_ -= bytes;
      return status;
    }
    return item;
  }

  // The item serves again when the work that `stream` has now is done.
  absl::Status Return(std::unique_ptr<Item> item, cudaStream_t stream) {
    const absl::Status status =
        WEIR_CUDA_CALL(cudaEventRecord(item->done, stream));
    MutexLock lock(&mu_);
    items_.push_back(std::move(item));
    return status;
  }

 private:
  bool Full(size_t bytes) const WEIR_REQUIRES(mu_) {
    return made_ >= max_ || made_bytes_ > max_bytes_ - bytes;
  }

  const size_t max_;
  const size_t max_bytes_;
  Mutex mu_;
  size_t made_ WEIR_GUARDED_BY(mu_) = 0;
  size_t made_bytes_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Item>> items_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::cuda
