// The internal operator weir.FusedElementwise, which
// kernels/graph/passes/fuse.h makes and a device's kernel may take: a chain of
// elementwise nodes, each of which reads what the one before it made. Inputs
// are what they read beside that, each once; attributes "code", a scalar
// expression as ChainCode makes it, and "operands", how many inputs the nodes
// have in all. All inputs and the output are of one floating type, to which
// what each node makes is rounded: the result is theirs, bit for bit, where the
// device's compiler joins no product with a sum.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "kernels/base/export.h"

namespace weir {

inline constexpr char kFusedElementwiseDomain[] = "weir";
inline constexpr char kFusedElementwiseName[] = "FusedElementwise";
inline constexpr std::string_view kFusedElementwiseCode = "code";
inline constexpr std::string_view kFusedElementwiseOperands = "operands";

// One node of a chain.
struct ChainLink {
  static constexpr int kBefore = -1;

  std::string code;         // ScalarExpression::code of the node
  std::vector<int> inputs;  // of the fused node, by the node's own; or kBefore
};

// A ScalarExpression's code for the whole chain, of one link or more.
WEIR_EXPORT std::string ChainCode(absl::Span<const ChainLink> chain);

}  // namespace weir
