#include "kernels/base/status_macros.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

WEIR_BINARY(EqualCode, x0 == x1)
WEIR_BINARY(LessCode, x0 < x1)
WEIR_BINARY(GreaterCode, x0 > x1)
WEIR_UNARY(NotCode, !x0)
WEIR_BINARY(AndCode, x0&& x1)
WEIR_BINARY(OrCode, x0 || x1)

using BoolList = TypeList<bool>;

struct WhereCode {
  template <typename T>
  T operator()(bool condition, T x, T y) const {
    return condition ? x : y;
  }
};

template <typename Code, typename List>
absl::Status RegisterPredicate(OpRegistry& registry, std::string_view name,
                               std::string_view doc, TypeSet types) {
  OpDef def;
  def.name = name;
  def.doc = doc;
  def.inputs = {{.name = "A", .types = types}, {.name = "B", .types = types}};
  def.outputs = {{.name = "C"}};
  def.infer = InferBroadcastBool;
  def.cost = ElementwiseCost;
  def.expression = CodeOf<Code>;
  return registry.Register(std::move(def), BinaryKernel<Code, List, bool>);
}

absl::Status InferWhere(InferContext& context) {
  WEIR_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastOfInputs(context));
  context.SetOutput(0, context.node().input_types[1], std::move(shape));
  return absl::OkStatus();
}

// Elements are moved, not computed with: their size is all that counts.
absl::StatusOr<std::unique_ptr<const Kernel>> MakeWhereKernel(
    const NodeInfo& node, Device&) {
  const DType type = node.input_types[1];
  ElementwiseCode code;
  DispatchSize(SizeOf(type), [&](auto tag) {
    using T = typename decltype(tag)::Type;
    code.loop = TernaryLoop<WhereCode, T, bool, T, T>;
  });
  code.operands = {0, 1, 2};
  code.types = {DType::kBool, type, type};
  code.result = type;
  return MakeElementwiseKernel(std::move(code));
}

}  // namespace

absl::Status Register_onnx_Equal(OpRegistry& registry) {
  return RegisterPredicate<EqualCode, Join<ComputeTypeList, BoolList>>(
      registry, "Equal", "A == B with broadcasting.", kFixedTypes);
}

absl::Status Register_onnx_Less(OpRegistry& registry) {
  return RegisterPredicate<LessCode, ComputeTypeList>(
      registry, "Less", "A < B with broadcasting.", kNumericTypes);
}

absl::Status Register_onnx_Greater(OpRegistry& registry) {
  return RegisterPredicate<GreaterCode, ComputeTypeList>(
      registry, "Greater", "A > B with broadcasting.", kNumericTypes);
}

absl::Status Register_onnx_And(OpRegistry& registry) {
  return RegisterPredicate<AndCode, BoolList>(
      registry, "And", "A and B with broadcasting.", {DType::kBool});
}

absl::Status Register_onnx_Or(OpRegistry& registry) {
  return RegisterPredicate<OrCode, BoolList>(
      registry, "Or", "A or B with broadcasting.", {DType::kBool});
}

absl::Status Register_onnx_Not(OpRegistry& registry) {
  OpDef def;
  def.name = "Not";
  def.doc = "The negation of X.";
  def.inputs = {{.name = "X", .types = {DType::kBool}}};
  def.outputs = {{.name = "Y"}};
  def.infer = InferSameAsInput;
  def.cost = ElementwiseCost;
  def.expression = CodeOf<NotCode>;
  return registry.Register(std::move(def), UnaryKernel<NotCode, BoolList>);
}

absl::Status Register_onnx_Where(OpRegistry& registry) {
  OpDef def;
  def.name = "Where";
  def.doc = "X where the condition holds, else Y, with broadcasting.";
  def.inputs = {{.name = "condition", .types = {DType::kBool}, .group = 1},
                {.name = "X", .types = kFixedTypes},
                {.name = "Y", .types = kFixedTypes}};
  def.outputs = {{.name = "output"}};
  def.infer = InferWhere;
  def.cost = ElementwiseCost;
  def.expression = [](const NodeInfo&) -> absl::StatusOr<ScalarExpression> {
    return ScalarExpression{"x0 ? x1 : x2", true};
  };
  return registry.Register(std::move(def), MakeWhereKernel);
}

}  // namespace weir
