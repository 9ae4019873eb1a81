// Building blocks of shape inference. The same function serves symbolic shapes
// (compilation) and concrete ones (planning). Errors are INVALID_ARGUMENT and
// name shapes and axes; the caller adds the node. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// Output 0 is input 0's type and shape.
absl::Status InferSameAsInput(InferContext& context);

// The common broadcast shape of all inputs; unknown if one of them is.
absl::StatusOr<SymbolicShape> BroadcastOfInputs(InferContext& context);
// Output 0 has that shape and input 0's type.
absl::Status InferBroadcast(InferContext& context);
// Output 0 has that shape and is bool.
absl::Status InferBroadcastBool(InferContext& context);

// A list of integers that ONNX moved from an attribute to an input.
struct IntList {
  enum class State { kAbsent, kUnknown, kKnown };
  State state = State::kAbsent;
  std::vector<int64_t> values;

  bool absent() const { return state == State::kAbsent; }
  bool known() const { return state == State::kKnown; }
};
// The attribute if it is there, else input `i`; an error if both are.
absl::StatusOr<IntList> AttributeOrInput(const InferContext& context,
                                         std::string_view attribute, size_t i);
// The same when everything is known; empty optional if neither is there.
WEIR_EXPORT std::optional<std::vector<int64_t>> AttributeOrInput(
    const NodeInfo& node, const PlanArgs& args, std::string_view attribute,
    size_t i);

// The attribute "axis", or `fallback` where it is missing, in [0, rank).
WEIR_EXPORT absl::StatusOr<size_t> AxisOf(const NodeInfo& node, size_t rank,
                                          int64_t fallback = 0);

// Sorted axes in [0, rank); a repeated one is an error.
absl::StatusOr<std::vector<int>> NormalizeAxes(absl::Span<const int64_t> axes,
                                               int rank);

// The number of elements that input i's shape says, if it is known (the length
// of a 1-D list of axes or sizes, say).
std::optional<int64_t> KnownElements(const InferContext& context, size_t i);

// INVALID_ARGUMENT unless the rank is unknown or equals `rank`.
absl::Status CheckRank(const InferContext& context, size_t i, int rank);

}  // namespace weir
