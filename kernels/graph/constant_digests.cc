#include "kernels/graph/constant_digests.h"

#include "kernels/graph/lowered_graph.h"
#include "kernels/graph/node_inference.h"

namespace weir {

absl::StatusOr<std::vector<int64_t>> ConstantDigests::Take(
    const LoweredNode& node, size_t i,
    const std::shared_ptr<const Constant>& constant) {
  absl::StatusOr<std::vector<int64_t>> ints = Get(node, i, constant, budget_);
  if (ints.ok() && node.def->digest != nullptr) {
    digests_.try_emplace({constant.get(), node.def}, Digest{constant, *ints});
  }
  return ints;
}

absl::StatusOr<std::vector<int64_t>> ConstantDigests::Get(
    const LoweredNode& node, size_t i,
    const std::shared_ptr<const Constant>& constant,
    DigestBudget& budget) const {
  if (node.def->digest != nullptr) {
    const auto found = digests_.find({constant.get(), node.def});
    if (found != digests_.end()) return found->second.ints;
  }
  return HostIntsOf(node, i, constant->tensor, budget);
}

void ConstantDigests::Replace(const Replacements& constants) {
  absl::flat_hash_map<const Constant*, std::vector<Key>> keys;
  for (const auto& [key, digest] : digests_) keys[key.first].push_back(key);
  absl::flat_hash_map<Key, Digest> replaced;
  for (const auto& [from, to] : constants) {
    const auto found = keys.find(from.get());
    if (found == keys.end()) continue;
    for (const Key& key : found->second) {
      replaced.try_emplace({to.get(), key.second},
                           Digest{to, digests_.find(key)->second.ints});
    }
  }
  digests_ = std::move(replaced);
}

size_t ConstantDigests::bytes() const {
  size_t bytes = 0;
  for (const auto& [key, digest] : digests_) {
    bytes += sizeof(key) + sizeof(digest);
    bytes += digest.ints.capacity() * sizeof(int64_t);
  }
  return bytes;
}

}  // namespace weir
