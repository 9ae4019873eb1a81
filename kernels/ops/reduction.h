// What nodes of reductions say, read once for the kernels of both devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// Which of `rank` dimensions go; all of them without axes, unless
// noop_with_empty_axes. INVALID_ARGUMENT for axes that are not there or repeat.
WEIR_EXPORT absl::StatusOr<std::vector<bool>> ReducedDims(
    const NodeInfo& node, absl::Span<const int64_t> axes, size_t rank);

}  // namespace weir
