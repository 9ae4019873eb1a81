// What nodes of Transpose, Expand, Slice, Pad, Concat and Split say, read once
// for the kernels of both devices. Pure functions; inference has accepted the
// node, so that errors are unlikely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"
#include "kernels/ops/strided_copy.h"

namespace weir {

// Transpose: the input axis that each axis of the output is. INVALID_ARGUMENT
// names the attribute.
WEIR_EXPORT absl::StatusOr<std::vector<size_t>> PermutationOf(
    const NodeInfo& node, size_t rank);

// How outputs lie in input 0.
WEIR_EXPORT StridedView TransposeViewOf(const Dims& input,
                                        const std::vector<size_t>& permutation);
WEIR_EXPORT StridedView ExpandViewOf(const Dims& input, const Dims& output);
WEIR_EXPORT absl::StatusOr<StridedView> SliceViewOf(const NodeInfo& node,
                                                    const PlanArgs& args);

// What goes into the other layout, of images x channels x spatial axes: as it
// lies in memory, so that it is the last two axes that trade places.
WEIR_EXPORT Dims RelayoutDims(const Dims& dims, Layout from);
StridedCopy RelayoutCopy(const Dims& dims, Layout from, size_t element_size);

// INVALID_ARGUMENT names the attribute.
WEIR_EXPORT absl::StatusOr<PadCopy::Mode> PadModeOf(const NodeInfo& node);
// The padding before each axis of input 0; negative where it is cropped.
WEIR_EXPORT absl::StatusOr<Dims> PadsBefore(const NodeInfo& node,
                                            const PlanArgs& args);

// Tensors that lie side by side in the rows of a matrix: the inputs of a Concat
// in its output, the outputs of a Split in its input.
struct SideBySide {
  int64_t rows = 1;
  int64_t pitch = 0;            // bytes of a row
  std::vector<int64_t> widths;  // bytes of each one's part of it

  bool empty() const { return rows == 0 || pitch == 0; }
};
// INVALID_ARGUMENT names the axis.
WEIR_EXPORT absl::StatusOr<SideBySide> SideBySideOf(
    const NodeInfo& node, const TensorMeta& matrix,
    absl::Span<const TensorMeta> parts);

}  // namespace weir
