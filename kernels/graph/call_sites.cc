#include "kernels/graph/call_sites.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"

namespace weir {

void CallSites::Add(size_t node, std::string_view site) {
  if (site.empty()) return;
  sites_[node] = std::string(CutText(site, kMaxSiteBytes));
}

size_t CallSites::bytes() const {
  constexpr size_t kBytesPerEntry = 96;
  size_t bytes = sites_.size() * kBytesPerEntry;
  for (const auto& [node, site] : sites_) bytes += site.size();
  return bytes;
}

absl::Status CallSites::Tell(const absl::Status& status) const {
  const std::optional<size_t> node = NodeIndex(status);
  if (!node.has_value() || IsInherited(status)) return status;
  const auto site = sites_.find(*node);
  if (site == sites_.end()) return status;
  return WithoutNodeIndex(Annotate(status, absl::StrCat(site->second, ": ")));
}

}  // namespace weir
