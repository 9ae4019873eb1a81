// weir.v1.GraphDefinition -> Graph. Checks what the message can get wrong by
// itself; Validate (kernels/graph) checks the graph. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/graph/graph.h"
#include "kernels/tensor/tensor.h"

namespace weir {

namespace v1 {
class GraphDefinition;
}  // namespace v1

// The declaration of an input that a request gives where its graph does not.
struct GivenInput {
  std::string_view name;
  DType dtype = DType::kInvalid;
  int rank = 0;
};

// Before the field of an error that is about what the request gives and not
// about the definition: ".inputs[2]".
inline constexpr char kRequestField[] = ".";

// An input that the definition declares without a spec takes element type and
// rank from `given`; with neither it is INVALID_ARGUMENT. Text of more than
// kMaxTextElements is RESOURCE_EXHAUSTED (reason GRAPH_TOO_LARGE) before memory
// is taken for it. Constants are taken out of the definition, not copied.
absl::StatusOr<Graph> ImportDefinition(v1::GraphDefinition definition,
                                       absl::Span<const GivenInput> given);

// INVALID_ARGUMENT with field `path` for an unknown element type, or none.
absl::StatusOr<DType> ImportDType(int number, std::string_view path);

}  // namespace weir
