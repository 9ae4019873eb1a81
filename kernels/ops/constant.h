// The value of a Constant node, for the graph layer (which makes a constant of
// it) and for the kernel. Pure.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// INVALID_ARGUMENT unless exactly one value attribute is there.
WEIR_EXPORT absl::StatusOr<Constant> ConstantValue(const NodeInfo& node);

}  // namespace weir
