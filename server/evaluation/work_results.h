// The pinned memory that the inline outputs of a done work lie in: taken from
// the work once, and lent to a reply. For one thread at a time.
#pragma once

#include <cstddef>

#include "kernels/device/pinned_pool.h"
#include "kernels/eval/work.h"
#include "server/bytes/foreign_bytes.h"

namespace weir {

class WorkResults {
 public:
  // Both outlive it. `pool` is that of the work's engine.
  WorkResults(Work* work, const PinnedPool* pool) : work_(work), pool_(pool) {}

  const Work& work() const { return *work_; }
  const PinnedPool& pool() const { return *pool_; }

  // -- Once the work is done.

  // What all inline outputs lie in, wanted or not, and what a reply which
  // references one of them holds.
  size_t bytes();
  // Hands the results to a reply that references them `count` times; each
  // reference ends with release(arg), whatever became of the work. Once.
  struct Shared {
    ForeignBytes::ReleaseFn release = nullptr;
    void* arg = nullptr;
  };
  Shared Share(int count);

  // Frees them, if nobody shares them; for the work's next use.
  void Clear();

 private:
  void Take();

  Work* const work_;
  const PinnedPool* const pool_;
  PinnedBuffer buffer_;  // once somebody asked
};

}  // namespace weir
