// What nodes of MaxPool and AveragePool say, read once for the kernels of both
// devices. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"
#include "kernels/ops/spatial_window.h"

namespace weir {

struct Pooling {
  SpatialWindow window;       // with its pads
  bool include_pad = false;   // AveragePool: the padding counts as zeros
  bool column_major = false;  // MaxPool: of Indices
};

// Of an X of `dims`. Errors as ParseSpatialWindow's.
WEIR_EXPORT absl::StatusOr<Pooling> PoolingOf(const NodeInfo& node,
                                              const Dims& dims);

}  // namespace weir
