// Device memory for tensors that callers keep: size classes (powers of two,
// from 1 MiB on in quarters between them) with a byte budget, valid on every
// stream. A block is used again only after every point of its former use was
// seen reached, and comes to another owner with what is in it: nobody reads of
// it what its new user did not write. Thread-safe.
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

  // `owner` names who may see old contents (a context). Of foreign memory the
  // caller overwrites all that the tensor has, or zeroes it on its stream,
  // before anybody reads. A run overwrites the whole of its outputs, and those
  // of one that failed nobody reads.
  // RESOURCE_EXHAUSTED, reason DEVICE_MEMORY_EXHAUSTED, beyond the budget.
  struct Allocation {
    std::shared_ptr<TensorStorage> storage;
    bool foreign = false;  // another owner's before, or the device's
  };
  absl::StatusOr<Allocation> Allocate(size_t bytes, uint64_t owner);
  // The same for threads that may not wait: without a storage if one would have
  // to be made or freed that is more than the device's quick_bytes.
  absl::StatusOr<Allocation> AllocateNow(size_t bytes, uint64_t owner);

  MemoryPoolStats stats() const;
  void Trim();

 private:
  absl::StatusOr<Allocation> Take(size_t bytes, uint64_t owner, bool may_wait);

  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace weir
