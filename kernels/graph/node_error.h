// How errors name a node, and which opset a node has. Pure; any thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/graph/graph.h"

namespace weir {

// `status` with the node's label before the message, and its index.
absl::Status NodeError(const absl::Status& status, const GraphNode& node,
                       size_t index);

int OpsetOf(const Graph& graph, std::string_view domain);

}  // namespace weir
