// What nodes of MatMul, Gemm and weir.FusedMatMul say, read once for the
// kernels of both devices. Pure.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

struct GemmAttributes {
  float alpha = 1;
  float beta = 1;
  bool transpose_a = false;
  bool transpose_b = false;
};
WEIR_EXPORT GemmAttributes GemmAttributesOf(const NodeInfo& node);

// One m x n x k product per index of `batch`, whose dims are merged as far as
// both operands allow.
struct ProductShape {
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
// Of operands of dims that inference has accepted. Matrices of A that share one
// of B are one tall matrix.
WEIR_EXPORT ProductShape MatMulShapeOf(const Dims& a, const Dims& b);
WEIR_EXPORT ProductShape GemmShapeOf(const GemmAttributes& attributes,
                                     const Dims& a, const Dims& b);

// What is added to a product: input 2, broadcast to its m x n. Strides are 0
// along broadcast axes.
struct Addend {
  bool present = false;  // not if it counts 0 times
  int64_t row_stride = 0, column_stride = 0;
  int64_t elements = 0;
};
WEIR_EXPORT Addend AddendOf(const PlanArgs& args, float beta);

}  // namespace weir
