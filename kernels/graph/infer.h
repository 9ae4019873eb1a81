// Shape inference over a whole graph, with symbolic dims where sizes are not
// known. Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/graph/graph.h"

namespace weir {

struct TypedShape {
  DType dtype = DType::kInvalid;
  SymbolicShape shape;
};

// Type and shape of every value, by name. `order` is from Validate. Errors name
// the node and print the shapes that do not fit.
WEIR_EXPORT absl::StatusOr<std::map<std::string, TypedShape, std::less<>>>
InferShapes(const Graph& graph, const std::vector<size_t>& order,
            const OpRegistry& registry);

}  // namespace weir
