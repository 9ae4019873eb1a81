// A loop over the elements of several operands at once, with dims merged as far
// as all of them allow: what kernels of both devices that broadcast, permute or
// reduce step through. Pure values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/tensor/shape.h"

namespace weir {

struct WEIR_EXPORT MergedLoop {
  explicit MergedLoop(size_t operands) : strides(operands) {}

  // The next dim, outermost first, with each operand's stride along it in
  // elements: 0 where it repeats, negative where it goes backward. A dim of one
  // element is left out, and one that every operand steps through as it would
  // go on from the dim before becomes part of that.
  void Append(int64_t dim, absl::Span<const int64_t> stride_of_each);
  // For who wants a dim where there is none: one of a single element.
  void AtLeastOne(int64_t stride);

  Dims dims;
  std::vector<Dims> strides;  // per operand, as many as dims
};

// How many elements `dims` have, as far as 63 bits count: beside a dim of zero,
// which another of a tensor's may be, they have any product.
WEIR_EXPORT int64_t SaturatingProduct(absl::Span<const int64_t> dims);

// Element strides of a dense tensor of `dims` broadcast to `out` by NumPy's
// rule: 0 where it repeats. REQUIRES: it fits, after ones in front that `out`
// lacks.
WEIR_EXPORT Dims BroadcastStrides(absl::Span<const int64_t> dims,
                                  absl::Span<const int64_t> out);

}  // namespace weir
