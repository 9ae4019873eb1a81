#include "kernels/ops/infer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/status_macros.h"

namespace weir {

absl::Status InferSameAsInput(InferContext& context) {
  context.SetOutput(0, context.node().input_types[0], context.input_shape(0));
  return absl::OkStatus();
}

absl::StatusOr<SymbolicShape> BroadcastOfInputs(InferContext& context) {
  const NodeInfo& node = context.node();
  SymbolicDims result;
  for (size_t i = 0; i < node.input_types.size(); ++i) {
    if (!node.HasInput(i)) continue;
    const SymbolicShape& shape = context.input_shape(i);
    if (!shape.has_value()) return SymbolicShape();
    WEIR_ASSIGN_OR_RETURN(result, BroadcastShapes(result, *shape));
  }
  return SymbolicShape(std::move(result));
}

absl::Status InferBroadcast(InferContext& context) {
  WEIR_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastOfInputs(context));
  context.SetOutput(0, context.node().input_types[0], std::move(shape));
  return absl::OkStatus();
}

absl::Status InferBroadcastBool(InferContext& context) {
  WEIR_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastOfInputs(context));
  context.SetOutput(0, DType::kBool, std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<IntList> AttributeOrInput(const InferContext& context,
                                         std::string_view attribute, size_t i) {
  const NodeInfo& node = context.node();
  IntList list;
  if (node.attributes.Has(attribute) && node.HasInput(i)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute \"", AbslView(attribute), "\" and input ", i,
                     " say the same: give one of them"));
  }
  if (node.attributes.Has(attribute)) {
    list.state = IntList::State::kKnown;
    list.values = node.attributes.Ints(attribute);
  } else if (node.HasInput(i)) {
    list.state = IntList::State::kUnknown;
    if (auto values = context.HostInts(i)) {
      list.state = IntList::State::kKnown;
      list.values.assign(values->begin(), values->end());
    }
  }
  return list;
}

std::optional<std::vector<int64_t>> AttributeOrInput(const NodeInfo& node,
                                                     const PlanArgs& args,
                                                     std::string_view attribute,
                                                     size_t i) {
  if (node.attributes.Has(attribute)) return node.attributes.Ints(attribute);
  if (node.HasInput(i) && i < args.host_ints.size()) return args.host_ints[i];
  return std::nullopt;
}

absl::StatusOr<size_t> AxisOf(const NodeInfo& node, size_t rank,
                              int64_t fallback) {
  WEIR_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(node.attributes.Int("axis", fallback),
                                      static_cast<int>(rank)));
  return static_cast<size_t>(axis);
}

absl::StatusOr<std::vector<int>> NormalizeAxes(absl::Span<const int64_t> axes,
                                               int rank) {
  std::vector<int> result;
  result.reserve(axes.size());
  for (int64_t axis : axes) {
    WEIR_ASSIGN_OR_RETURN(const int normal, NormalizeAxis(axis, rank));
    result.push_back(normal);
  }
  std::sort(result.begin(), result.end());
  const auto repeated = std::adjacent_find(result.begin(), result.end());
  if (repeated != result.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("axis ", *repeated, " is repeated"));
  }
  return result;
}

std::optional<int64_t> KnownElements(const InferContext& context, size_t i) {
  const SymbolicShape& shape = context.input_shape(i);
  if (!shape.has_value()) return std::nullopt;
  const Dim product = Product(*shape);
  if (!product.known()) return std::nullopt;
  return product.value();
}

absl::Status CheckRank(const InferContext& context, size_t i, int rank) {
  const SymbolicShape& shape = context.input_shape(i);
  if (!shape.has_value() || static_cast<int>(shape->size()) == rank) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "input ", i, " has shape ", ShapeString(shape), ", not rank ", rank));
}

}  // namespace weir
