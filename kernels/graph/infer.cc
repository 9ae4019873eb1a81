#include "kernels/graph/infer.h"

#include "kernels/base/status_macros.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/graph/symbolic_pass.h"

namespace weir {

absl::StatusOr<std::map<std::string, TypedShape, std::less<>>> InferShapes(
    const Graph& graph, const std::vector<size_t>& order,
    const OpRegistry& registry) {
  LoweredGraph lowered = Lower(graph, order, registry);
  WEIR_RETURN_IF_ERROR(InferAndFold(lowered, registry, std::nullopt,
                                    [] { return absl::OkStatus(); }));
  std::map<std::string, TypedShape, std::less<>> result;
  for (const LoweredValue& value : lowered.values) {
    if (value.name.empty()) continue;
    result.emplace(value.name, TypedShape{value.dtype, value.shape});
  }
  return result;
}

}  // namespace weir
