// What operators' digests make of constants (op.h), each asked once for all
// nodes of an operator: a constant may be as large as a message, and nodes
// many. It keeps the constants alive. Take and Replace belong to the thread
// that compiles; afterwards any may Get. Internal to this layer.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kernels/ops/op.h"

namespace weir {

struct LoweredNode;

class ConstantDigests {
 public:
  // HostIntsOf input `i` of `node`, which is `constant`. All that are taken
  // have one budget.
  absl::StatusOr<std::vector<int64_t>> Take(
      const LoweredNode& node, size_t i,
      const std::shared_ptr<const Constant>& constant);
  // The same; what was never taken is computed out of `budget`, and forgotten.
  absl::StatusOr<std::vector<int64_t>> Get(
      const LoweredNode& node, size_t i,
      const std::shared_ptr<const Constant>& constant,
      DigestBudget& budget) const;

  // From now on goes by what constants became, in pairs of old and new; those
  // that are in no pair are forgotten.
  using Replacements = std::vector<std::pair<std::shared_ptr<const Constant>,
                                             std::shared_ptr<const Constant>>>;
  void Replace(const Replacements& constants);

  size_t bytes() const;  // without the constants

 private:
  using Key = std::pair<const Constant*, const OpDef*>;
  struct Digest {
    std::shared_ptr<const Constant> constant;  // keeps its address
    std::vector<int64_t> ints;
  };
  absl::flat_hash_map<Key, Digest> digests_;
  DigestBudget budget_;
};

}  // namespace weir
