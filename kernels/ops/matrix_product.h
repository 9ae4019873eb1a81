// Products of matrices on a CPU: of floats and half types by oneDNN, of other
// types by loops of our own. What the kernels of MatMul and Gemm plan with.
// Pure; plans are immutable and may be run from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/base/alignment.h"
#include "kernels/ops/matmul.h"
#include "kernels/ops/op.h"

namespace weir {

// What so many floats take of scratch memory.
inline size_t FloatBytes(int64_t elements) {
  return AlignUp(static_cast<size_t>(elements) * sizeof(float),
                 kVectorAlignment);
}

// C = alpha * A * B + beta * addend, of inputs 0, 1 and 2 into output 0.
absl::StatusOr<std::unique_ptr<const KernelPlan>> PlanProduct(
    const PlanArgs& args, const ProductShape& product, float alpha, float beta,
    const Addend& addend);

}  // namespace weir
