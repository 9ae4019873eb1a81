// What nodes of weir.RandomUniform say, read once for the kernels of both
// devices. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/base/export.h"
#include "kernels/base/philox.h"
#include "kernels/ops/op.h"

namespace weir {

// Element k of row r is word k % 4 of Philox(SeedOf(run), StreamOf(run) | r,
// k / 4). The numbers of a node with a seed of its own do not depend on where
// it stands.
struct UniformDraws {
  float low = 0;
  float high = 1;
  std::optional<uint64_t> seed;  // the node's own

  uint64_t SeedOf(const RunArgs& run) const {
    return seed.value_or(run.random.seed);
  }
  uint64_t StreamOf(const RunArgs& run) const {
    return seed.has_value() ? 0 : uint64_t{run.node_index} << kPhiloxRowBits;
  }
};

// INVALID_ARGUMENT names the attribute.
WEIR_EXPORT absl::StatusOr<UniformDraws> UniformDrawsOf(const NodeInfo& node);

}  // namespace weir
