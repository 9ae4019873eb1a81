// Products of matrices on a CPU: of floats and half types by oneDNN, of other
// types by loops of our own. What the kernels of MatMul and Gemm plan with.
// Pure; plans are immutable and may be run from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops/op.h"

namespace weir {

// One m x n x k product per index of `batch`, whose dims are merged as far as
// both operands allow.
struct MatrixProduct {
  int64_t m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  Dims batch;                 // none: a single product
  Dims strides_a, strides_b;  // elements between matrices; 0: the same for all

  int64_t lda() const { return transpose_a ? m : k; }
  int64_t ldb() const { return transpose_b ? k : n; }

  int64_t count() const {
    int64_t count = 1;
    for (const int64_t dim : batch) count *= dim;
    return count;
  }
  // Where the matrices of product `i` begin, in elements.
  struct Offsets {
    int64_t a = 0, b = 0, c = 0;
  };
  Offsets At(int64_t i) const {
    Offsets at;
    at.c = i * m * n;
    for (size_t d = batch.size(); d-- > 0;) {
      at.a += i % batch[d] * strides_a[d];
      at.b += i % batch[d] * strides_b[d];
      i /= batch[d];
    }
    return at;
  }
};

// Gemm's addend, broadcast to m x n; strides are 0 along broadcast axes.
struct Addend {
  bool present = false;
  int64_t row_stride = 0, column_stride = 0;
  int64_t elements = 0;
};

// What so many floats take of scratch memory.
inline size_t FloatBytes(int64_t elements) {
  return (static_cast<size_t>(elements) * sizeof(float) + 63) / 64 * 64;
}

// C = alpha * A * B + beta * addend, of inputs 0, 1 and 2 into output 0.
absl::StatusOr<std::unique_ptr<const KernelPlan>> PlanProduct(
    const PlanArgs& args, const MatrixProduct& product, float alpha, float beta,
    const Addend& addend);

}  // namespace weir
