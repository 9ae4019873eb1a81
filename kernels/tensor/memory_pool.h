// Device memory for tensors that callers keep: size classes (powers of two,
// from 1 MiB on in quarters between them) with a byte budget, valid on every
// stream. A block is used again only after every point of its former use was
// seen reached, and comes with what its last user, or the device, left in it:
// whoever takes one writes the whole of its tensor before anybody reads. A run
// does, and the outputs of one that failed nobody reads. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/tensor/tensor.h"

namespace weir {

struct MemoryPoolStats {
  size_t budget_bytes = 0;
  size_t used_bytes = 0;    // in live tensors
  size_t cached_bytes = 0;  // free, or waiting for points
  uint64_t refused_total = 0;
};

class WEIR_EXPORT MemoryPool {
 public:
  MemoryPool(Device* device, size_t budget_bytes);
  ~MemoryPool();  // REQUIRES: no storage is left

  using StorageOr = absl::StatusOr<std::shared_ptr<TensorStorage>>;

  // RESOURCE_EXHAUSTED, reason DEVICE_MEMORY_EXHAUSTED, beyond the budget.
  StorageOr Allocate(size_t bytes);
  // The same for threads that may not wait: null if memory would have to be
  // made or freed that is more than the device's quick_bytes.
  StorageOr AllocateNow(size_t bytes);

  MemoryPoolStats stats() const;
  void Trim();

 private:
  StorageOr Take(size_t bytes, bool may_wait);

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weir
