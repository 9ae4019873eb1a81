// Whether the shapes given for a program's inputs are those that it declares.
// Each input is looked at alone: a name that several extents share is a label,
// and operators say for themselves which extents must agree. Pure. Internal to
// this layer.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/graph/graph.h"
#include "kernels/tensor/shape.h"

namespace weir {

// `symbols` are the program's. INVALID_ARGUMENT continues the input's name:
// "has shape [2,3] where [N,4] is declared". A dim that is not known fits.
absl::Status CheckInputFit(const ValueDecl& decl,
                           const std::vector<std::string>& symbols,
                           absl::Span<const Dim> given);

// What is known of an input's shape: of each dim the given size, or what
// `declared` says.
SymbolicShape CompleteShape(const SymbolicShape& declared,
                            const SymbolicShape& given);

}  // namespace weir
