// Host memory that no device reads, within the budget of a pool of pinned
// buffers: for copies that are copied once more. It is there at once, on any
// thread, where a pinned buffer may have to be made by the driver.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/device/pinned_pool.h"

namespace weir {

// Move-only. May be dropped on any thread; the pool outlives it.
class WEIR_EXPORT PageableBuffer {
 public:
  // `bytes` or more, from a multiple of kBlockAlignment on. RESOURCE_EXHAUSTED
  // (reason HOST_MEMORY_EXHAUSTED, with a retry hint) when the budget is spent
  // or the host has no memory.
  static absl::StatusOr<PageableBuffer> Create(PinnedPool& pool, size_t bytes);

  PageableBuffer() = default;  // empty

  std::byte* data() const { return data_.get(); }
  bool empty() const { return data_ == nullptr; }
  void Reset() { *this = {}; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
    PinnedPool* pool;
    size_t charged;
  };
  std::unique_ptr<std::byte, Free> data_{nullptr, Free{nullptr, 0}};
};

}  // namespace weir
