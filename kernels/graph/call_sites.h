// Where a caller's program made the nodes of a graph. It is no part of that:
// requests with the same graph share its program, and each has errors name its
// own lines. Movable; no thread rules.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/export.h"

namespace weir {

class WEIR_EXPORT CallSites {
 public:
  // Of what is longer, the beginning is kept.
  static constexpr size_t kMaxSiteBytes = 512;

  // `node` as in Graph::nodes. An empty site is none.
  void Add(size_t node, std::string_view site);

  bool empty() const { return sites_.empty(); }
  // About what it holds.
  size_t bytes() const;

  // `status` with the site of the node at fault (WithNodeIndex), if that has
  // one, before its message. An error that was inherited is another graph's.
  absl::Status Tell(const absl::Status& status) const;

 private:
  std::map<size_t, std::string> sites_;
};

}  // namespace weir
