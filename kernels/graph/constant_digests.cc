#include "kernels/graph/constant_digests.h"

#include "kernels/graph/lowered_graph.h"
#include "kernels/graph/node_inference.h"

namespace weir {

absl::StatusOr<std::vector<int64_t>> ConstantDigests::Take(
    const LoweredNode& node, size_t i,
    const std::shared_ptr<const Constant>& constant) {
  absl::StatusOr<std::vector<int64_t>> ints = Get(node, i, constant);
  if (ints.ok() && node.def->digest != nullptr) {
    digests_.try_emplace({constant.get(), node.def}, Digest{constant, *ints});
  }
  return ints;
}

absl::StatusOr<std::vector<int64_t>> ConstantDigests::Get(
    const LoweredNode& node, size_t i,
    const std::shared_ptr<const Constant>& constant) const {
  if (node.def->digest != nullptr) {
    const auto found = digests_.find({constant.get(), node.def});
    if (found != digests_.end()) return found->second.ints;
  }
  return HostIntsOf(node, i, constant->tensor);
}

}  // namespace weir
