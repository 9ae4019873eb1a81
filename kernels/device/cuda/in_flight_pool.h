// Things that a stream uses after the call that enqueued the work returned, and
// that may serve another call once that work is done: a decoder's buffers,
// pinned staging. Each carries an event that tells. Bounded; never waits.
// Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"

namespace weir::cuda {

template <typename T>
class InFlightPool {
 public:
  struct Item {
    T value;
    cudaEvent_t done = nullptr;
    ~Item() {
      if (done != nullptr) (void)cudaEventDestroy(done);
    }
  };

  explicit InFlightPool(size_t max) : max_(max) {}

  // An item whose work is done and that `fits`, else a new one from `make`.
  // RESOURCE_EXHAUSTED when `max` are in flight.
  template <typename Fits, typename Make>
  absl::StatusOr<std::unique_ptr<Item>> Take(const Fits& fits,
                                             const Make& make) {
    std::unique_ptr<Item> unfit;  // destroyed outside the lock
    {
      MutexLock lock(&mu_);
      for (size_t i = 0; i < items_.size(); ++i) {
        const cudaError_t queried = cudaEventQuery(items_[i]->done);
        if (queried == cudaErrorNotReady) continue;
        WEIR_RETURN_IF_ERROR(CudaStatus(queried, "cudaEventQuery"));
        std::swap(items_[i], items_.back());
        std::unique_ptr<Item> item = std::move(items_.back());
        items_.pop_back();
        if (fits(item->value)) return item;
        unfit = std::move(item);
        --made_;
        break;
      }
      if (made_ >= max_) {
        return absl::ResourceExhaustedError(
            absl::StrCat(max_, " decoding works are in flight"));
      }
      ++made_;
    }
    unfit.reset();
    auto item = std::make_unique<Item>();
    absl::Status status = make(&item->value);
    if (status.ok()) {
      status = WEIR_CUDA_CALL(
          cudaEventCreateWithFlags(&item->done, cudaEventDisableTiming));
    }
    if (!status.ok()) {
      MutexLock lock(&mu_);
      --made_;
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
  const size_t max_;
  Mutex mu_;
  size_t made_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<std::unique_ptr<Item>> items_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::cuda
