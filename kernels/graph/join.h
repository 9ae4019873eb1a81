// Several graphs as one, so that works which wait for a flush are compiled and
// launched together. Parts keep their order; a part may read outputs of earlier
// ones. Names of part i get the prefix "i/". Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/graph/graph.h"

namespace weir {

// Input or output number `index` of part number `part`.
struct PartValue {
  size_t part = 0;
  size_t index = 0;
};

struct JoinPart {
  const Graph* graph = nullptr;
  // Its outputs as inferred: Program::outputs().
  const std::vector<ValueDecl>* outputs = nullptr;
  // Per input of the graph: the earlier part's output that it reads, or none
  // (the joined graph then has an input for it).
  absl::InlinedVector<std::optional<PartValue>, 4> links;
  // Per output of the graph: whether the joined graph has it too.
  absl::InlinedVector<bool, 4> wanted;
};

// Which inputs and outputs the joined graph has, in its order.
struct JoinedInterface {
  std::vector<PartValue> inputs;
  std::vector<PartValue> outputs;
};
WEIR_EXPORT JoinedInterface JoinInterfaces(absl::Span<const JoinPart> parts);

// FAILED_PRECONDITION if two parts take a domain at different opsets, or a
// linked input is declared as what its producer is not known to make: the
// element type and the rank must be the same, and no fixed extents are left for
// the joined graph to check.
WEIR_EXPORT absl::StatusOr<Graph> JoinGraphs(absl::Span<const JoinPart> parts);

}  // namespace weir
