// Things that a stream uses after the call that enqueued the work returned, and
// that may serve another call once that work is done: a decoder's buffers,
// pinned staging. Each carries an event that tells. Bounded; who wants one
// while too many are in use waits its turn. Thread-safe.
//
// Nobody waits for ever. What is in use was returned, and then the device ends
// with it, whatever the host does; or a thread holds it that wants nothing more
// of the pool before it returns it, nor of what a thread holds that waits here.
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
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/turns.h"

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
  // `max_bytes` with it, those that do not fit make room; while too many are in
  // use it waits by `wait_for`, whose error is returned. RESOURCE_EXHAUSTED,
  // reason DEVICE_MEMORY_EXHAUSTED, for more bytes than there can ever be.
  template <typename Fits, typename Make>
  absl::StatusOr<std::unique_ptr<Item>> Take(const Fits& fits, const Make& make,
                                             WaitFor wait_for,
                                             size_t bytes = 0) {
    if (bytes > max_bytes_) {
      return WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              bytes, " bytes are wanted at once where there can be ",
              max_bytes_)),
          "DEVICE_MEMORY_EXHAUSTED",
          {{"bytes", absl::StrCat(bytes)},
           {"budget_bytes", absl::StrCat(max_bytes_)}});
    }
    std::unique_ptr<Item> item;  // null: its place is taken
    const uint64_t turn = Arrive();
    const absl::Status waited = wait_for([&]() -> absl::StatusOr<Awaited> {
      std::vector<std::unique_ptr<Item>> unfit;  // destroyed outside the lock
      MutexLock lock(&mu_);
      return TakeNow(turn, fits, bytes, &item, &unfit);
    });
    Leave(turn);
    WEIR_RETURN_IF_ERROR(waited);
    if (item != nullptr) return item;
    item = std::make_unique<Item>();
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
    absl::Status status = item->done.Record(stream);
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
  uint64_t Arrive() {
    MutexLock lock(&mu_);
    return turns_.Arrive();
  }
  void Leave(uint64_t turn) {
    MutexLock lock(&mu_);
    turns_.Leave(turn);
  }
  // Takes an item, or the place of a new one, if it is the turn's and there is
  // one.
  template <typename Fits>
  absl::StatusOr<Awaited> TakeNow(uint64_t turn, const Fits& fits, size_t bytes,
                                  std::unique_ptr<Item>* item,
                                  std::vector<std::unique_ptr<Item>>* unfit)
      WEIR_REQUIRES(mu_) {
    if (!turns_.IsNext(turn)) return Awaited::kHost;  // it waits for what it is
    for (size_t i = items_.size(); i-- > 0;) {
      if (!fits(items_[i]->value)) continue;
      WEIR_ASSIGN_OR_RETURN(const bool reached, items_[i]->done.Reached());
      if (!reached) continue;
      *item = Remove(i);
      return Awaited::kNothing;
    }
    for (size_t i = 0; i < items_.size() && Full(bytes);) {
      WEIR_ASSIGN_OR_RETURN(const bool reached, items_[i]->done.Reached());
      if (!reached || fits(items_[i]->value)) {
        ++i;
        continue;
      }
      unfit->push_back(Remove(i));
      Forget(unfit->back()->bytes);
    }
    // What is left is in flight; where nothing is, threads hold it.
    if (Full(bytes)) {
      return items_.empty() ? Awaited::kHost : Awaited::kDevice;
    }
    ++made_;
    made_bytes_ += bytes;
    return Awaited::kNothing;
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
  Turns turns_ WEIR_GUARDED_BY(mu_);
  size_t made_ WEIR_GUARDED_BY(mu_) = 0;
  size_t made_bytes_ WEIR_GUARDED_BY(mu_) = 0;
  // In the order in which they were returned.
  std::vector<std::unique_ptr<Item>> items_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir::cuda
