// What nodes of reductions say, read once for the kernels of both devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/op.h"

namespace weir {

// Which of `rank` dimensions go; all of them without axes, unless
// noop_with_empty_axes. INVALID_ARGUMENT for axes that are not there or repeat.
WEIR_EXPORT absl::StatusOr<std::vector<bool>> ReducedDims(
    const NodeInfo& node, absl::Span<const int64_t> axes, size_t rank);

// What goes and what stays of a dense tensor: where its elements lie, with dims
// merged where they follow each other.
struct ReductionShape {
  MergedLoop kept{1};  // at least one dim each
  MergedLoop reduced{1};
  int64_t outputs = 1;
  int64_t count = 1;          // elements reduced into each of them
  bool inner_reduced = true;  // elements side by side go into one output
};
WEIR_EXPORT ReductionShape ReductionShapeOf(const Dims& dims,
                                            const std::vector<bool>& reduced);

// What ArgMax looks for along an axis: of equal elements the first or last.
struct ArgMaxSearch {
  size_t axis = 0;
  bool last = false;
};
// INVALID_ARGUMENT names the axis.
WEIR_EXPORT absl::StatusOr<ArgMaxSearch> ArgMaxSearchOf(const NodeInfo& node,
                                                        size_t rank);

}  // namespace weir
