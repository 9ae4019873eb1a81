#include "kernels/ops/cost.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/base/saturating.h"
#include "kernels/ops/op.h"

namespace weir {

NodeCost OutputCost(const NodeInfo&, Pace, const PlanArgs& args) {
  NodeCost cost;
  for (const TensorMeta& output : args.outputs) {
    cost.operations = SaturatingAdd(cost.operations, output.elements);
  }
  return cost;
}

NodeCost LinearCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = OutputCost(node, pace, args);
  for (const TensorMeta& input : args.inputs) {
    cost.operations = SaturatingAdd(cost.operations, input.elements);
  }
  return cost;
}

void AddInTurn(Pace pace, const PlanArgs& args, int64_t count,
               int64_t operations, NodeCost& cost) {
  const bool makes_any =
      std::any_of(args.outputs.begin(), args.outputs.end(),
                  [](const TensorMeta& output) { return output.elements > 0; });
  if (pace != Pace::kInTurn || !makes_any) return;
  cost.operations =
      SaturatingAdd(cost.operations, SaturatingMul(count, operations));
}

void AddStridedInTurn(Pace pace, const PlanArgs& args, const TensorMeta& from,
                      int64_t elements, int64_t stride, NodeCost& cost) {
  const int64_t apart =
      SaturatingMul(std::abs(stride), static_cast<int64_t>(SizeOf(from.dtype)));
  if (apart < kLineBytes || from.bytes <= kCachedBytes) return;
  AddInTurn(pace, args, elements, kFarReadOperations, cost);
}

int64_t RowsOf(const TensorMeta& meta) {
  for (size_t d = meta.dims.size(); d-- > 0;) {
    if (meta.dims[d] > 1) return meta.elements / meta.dims[d];
  }
  return meta.elements;
}

NodeCost RowwiseCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  return RowsCost(node, pace, args, RowsOf(args.outputs[0]));
}

NodeCost RowsCost(const NodeInfo& node, Pace pace, const PlanArgs& args,
                  int64_t rows) {
  // Of a row, to find out where it comes from.
  constexpr int64_t kAxisOperations = 6;
  NodeCost cost = OutputCost(node, pace, args);
  const auto rank = static_cast<int64_t>(args.outputs[0].dims.size());
  AddInTurn(pace, args, rows, kAxisOperations * rank, cost);
  return cost;
}

NodeCost ElementwiseCost(const NodeInfo& node, Pace pace,
                         const PlanArgs& args) {
  NodeCost cost = OutputCost(node, pace, args);
  cost.operations = SaturatingMul(
      cost.operations,
      std::max<int64_t>(1, static_cast<int64_t>(args.inputs.size())));
  const int64_t elements = args.outputs[0].elements;
  if (std::any_of(args.inputs.begin(), args.inputs.end(),
                  [elements](const TensorMeta& input) {
                    return input.elements > 1 && input.elements != elements;
                  })) {
    // Where each operand's row begins, and a call for each if they are many.
    AddInTurn(pace, args, RowsOf(args.outputs[0]),
              kRowOperations / 2 * static_cast<int64_t>(args.inputs.size()),
              cost);
  }
  return cost;
}

}  // namespace weir
