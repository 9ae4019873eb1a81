// How errors name a node, and which opset a node has. Pure; any thread.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "kernels/graph/graph.h"

namespace weir {

// `status` with the node's label, and its call site if it has one, before the
// message.
absl::Status NodeError(const absl::Status& status, const GraphNode& node,
                       size_t index);

// The same for an error that has the label already.
absl::Status WithCallSite(const absl::Status& status,
                          std::string_view call_site);

int OpsetOf(const Graph& graph, std::string_view domain);

}  // namespace weir
