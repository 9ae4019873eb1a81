// Turns of those who wait for a share of something bounded, first come, first
// served. Whoever stops waiting gives its turn up. Belongs to what is shared
// out, and is guarded by its lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/device/stream.h"

namespace weir::cuda {

// How who wants a share waits for it: Stream::Await, of the stream that it is
// for.
using WaitFor = absl::FunctionRef<absl::Status(Stream::Look look)>;

class Turns {
 public:
  uint64_t Arrive() {
    waiting_.push_back(++arrived_);
    return arrived_;
  }
  // Whether nobody is before it. REQUIRES: it has not left.
  bool IsNext(uint64_t turn) const { return waiting_.front() == turn; }
  void Leave(uint64_t turn) {
    waiting_.erase(std::lower_bound(waiting_.begin(), waiting_.end(), turn));
  }
  size_t waiting() const { return waiting_.size(); }

 private:
  uint64_t arrived_ = 0;
  std::deque<uint64_t> waiting_;  // in order
};

}  // namespace weir::cuda
