#include "kernels/ops/fused_elementwise.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

NodeCost FusedElementwiseCost(const NodeInfo& node, Pace,
                              const PlanArgs& args) {
  NodeCost cost;
  cost.operations =
      SaturatingMul(args.outputs[0].elements,
                    node.attributes.Int(kFusedElementwiseOperands, 1));
  return cost;
}

// The link's expression of its own x0, x1, ..., called with what they are here.
std::string Call(const ChainLink& link, size_t position) {
  std::string parameters, arguments;
  for (size_t i = 0; i < link.inputs.size(); ++i) {
    const char* const comma = i == 0 ? "" : ", ";
    absl::StrAppend(&parameters, comma, "T x", i);
    if (link.inputs[i] == ChainLink::kBefore) {
      absl::StrAppend(&arguments, comma, "t", position - 1);
    } else {
      absl::StrAppend(&arguments, comma, "x", link.inputs[i]);
    }
  }
  return absl::StrCat("[](", parameters, ") { return ", link.code, "; }(",
                      arguments, ")");
}

}  // namespace

std::string ChainCode(absl::Span<const ChainLink> chain) {
  std::string code = "[&] { ";
  for (size_t i = 0; i + 1 < chain.size(); ++i) {
    absl::StrAppend(&code, "const T t", i, " = Load(Store<SR>(",
                    Call(chain[i], i), ")); ");
  }
  absl::StrAppend(&code, "return ", Call(chain.back(), chain.size() - 1),
                  "; }()");
  return code;
}

// No kernel of the CPU takes it.
absl::Status Register_weir_FusedElementwise(OpRegistry& registry) {
  OpDef def;
  def.domain = kFusedElementwiseDomain;
  def.name = kFusedElementwiseName;
  def.doc = "Elementwise nodes, one behind the other.";
  def.internal = true;
  def.inputs = {{.name = "X", .types = kFloatTypes, .variadic = true}};
  def.outputs = {{.name = "Y"}};
  def.attributes = {
      {kFusedElementwiseCode, AttributeType::kString, true, "The expression."},
      {kFusedElementwiseOperands, AttributeType::kInt, true,
       "How many inputs the nodes have."}};
  def.infer = InferBroadcast;
  def.cost = FusedElementwiseCost;
  def.cpu_weight = kFunctionCpuWeight;
  def.expression =
      [](const NodeInfo& node) -> absl::StatusOr<ScalarExpression> {
    return ScalarExpression{node.attributes.String(kFusedElementwiseCode, "")};
  };
  return registry.Register(std::move(def));
}

}  // namespace weir
