// All CPU threads of a CPU device working on one large operator. Callable from
// inside a CPU work (the caller takes part, so that it cannot deadlock), from
// several works at once; the sum of threads is bounded by the device.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/base/export.h"

namespace weir {

class WEIR_EXPORT CpuTeam {
 public:
  virtual ~CpuTeam() = default;
  virtual int size() const = 0;
  // Calls fn(begin, end) over a partition of [0, n); returns when all are done.
  // Small n (below `grain`) runs in the caller.
  virtual void Run(int64_t n, int64_t grain,
                   absl::FunctionRef<void(int64_t, int64_t)> fn) = 0;
  // True once nobody wants the operator's result any more; it stays true. Loops
  // (kernels/ops/parallel_for.h) then skip what they have not begun. Any
  // thread, between pieces of some microseconds.
  virtual bool GivenUp() { return false; }
};

}  // namespace weir
