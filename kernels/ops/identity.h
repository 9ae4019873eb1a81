// What nodes of Shape say, read once for the kernels of both devices. Pure.
#pragma once

#include <cstddef>

#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// The dims of the input that Shape returns; `end` is exclusive, both are
// clamped to the rank.
struct ShapeWindow {
  size_t begin;
  size_t end;
};
WEIR_EXPORT ShapeWindow ShapeWindowOf(const NodeInfo& node, size_t rank);

}  // namespace weir
