#include "kernels/graph/node_error.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/graph/opsets.h"

namespace weir {

absl::Status NodeError(const absl::Status& status, const GraphNode& node,
                       size_t index) {
  return WithNodeIndex(
      Annotate(status, absl::StrCat(NodeLabel(node, index), ": ")), index);
}

int OpsetOf(const Graph& graph, std::string_view domain) {
  const auto it = graph.opsets.find(domain);
  if (it != graph.opsets.end()) return it->second;
  return domain.empty() ? kNewestOnnxOpset : kWeirOpset;
}

}  // namespace weir
