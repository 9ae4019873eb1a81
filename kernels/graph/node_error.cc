#include "kernels/graph/node_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"
#include "kernels/graph/opsets.h"

namespace weir {
namespace {

// The caller's own words are repeated in error messages, up to here.
constexpr size_t kMaxCallSiteBytes = 512;

}  // namespace

absl::Status NodeError(const absl::Status& status, const GraphNode& node,
                       size_t index) {
  return WithCallSite(
      Annotate(status, absl::StrCat(NodeLabel(node, index), ": ")),
      node.call_site);
}

absl::Status WithCallSite(const absl::Status& status,
                          std::string_view call_site) {
  if (call_site.empty()) return status;
  return Annotate(
      status,
      absl::StrCat(AbslView(CutText(call_site, kMaxCallSiteBytes)), ": "));
}

int OpsetOf(const Graph& graph, std::string_view domain) {
  const auto it = graph.opsets.find(domain);
  if (it != graph.opsets.end()) return it->second;
  return domain.empty() ? kNewestOnnxOpset : kWeirOpset;
}

}  // namespace weir
