#include "kernels/ops/merged_loop.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/base/saturating.h"

namespace weir {
namespace {

// Beside a dimension of zero the others, and so strides, may have any product.
int64_t Times(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) *
                              static_cast<uint64_t>(b));
}

}  // namespace

void MergedLoop::Append(int64_t dim, absl::Span<const int64_t> stride_of_each) {
  if (dim == 1) return;
  bool merges = !dims.empty();
  for (size_t k = 0; merges && k < strides.size(); ++k) {
    merges = strides[k].back() == Times(stride_of_each[k], dim);
  }
  if (merges) {
    dims.back() = SaturatingMul(dims.back(), dim);
  } else {
    dims.push_back(dim);
  }
  for (size_t k = 0; k < strides.size(); ++k) {
    if (merges) {
      strides[k].back() = stride_of_each[k];
    } else {
      strides[k].push_back(stride_of_each[k]);
    }
  }
}

void MergedLoop::AtLeastOne(int64_t stride) {
  if (!dims.empty()) return;
  dims.push_back(1);
  for (Dims& each : strides) each.push_back(stride);
}

int64_t SaturatingProduct(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product = SaturatingMul(product, dim);
  return product;
}

Dims BroadcastStrides(absl::Span<const int64_t> dims,
                      absl::Span<const int64_t> out) {
  const Dims dense = DenseStrides(dims);
  Dims strides(out.size(), 0);
  for (size_t j = 1; j <= std::min(dims.size(), out.size()); ++j) {
    const size_t d = dims.size() - j;
    if (dims[d] != 1) strides[out.size() - j] = dense[d];
  }
  return strides;
}

}  // namespace weir
