#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

WEIR_BINARY(AddCode, Add(x0, x1))
WEIR_BINARY(SubCode, Sub(x0, x1))
WEIR_BINARY(MulCode, Mul(x0, x1))
WEIR_BINARY(DivCode, Div(x0, x1))
WEIR_BINARY(IntegerDivCode,
            x1 == T(0) ? FAULT(FaultCode::kDivisionByZero) : Div(x0, x1))
WEIR_BINARY(PowCode, Pow(x0, x1))
WEIR_BINARY(MinCode, Minimum(x0, x1))
WEIR_BINARY(MaxCode, Maximum(x0, x1))

constexpr TypeSet kPowTypes =
    kFloatTypes | TypeSet{DType::kInt32, DType::kInt64};

OpDef BinaryDef(std::string_view name, std::string_view doc) {
  OpDef def;
  def.name = name;
  def.doc = doc;
  def.inputs = {{.name = "A", .types = kNumericTypes},
                {.name = "B", .types = kNumericTypes}};
  def.outputs = {{.name = "C"}};
  def.infer = InferBroadcast;
  def.cost = ElementwiseCost;
  return def;
}

template <typename Code>
absl::Status RegisterBinary(OpRegistry& registry, std::string_view name,
                            std::string_view doc) {
  OpDef def = BinaryDef(name, doc);
  def.expression = CodeOf<Code>;
  return registry.Register(std::move(def), BinaryKernel<Code, ComputeTypeList>);
}

absl::StatusOr<ScalarExpression> DivExpression(const NodeInfo& node) {
  return IsInteger(node.input_types[0]) ? CodeOf<IntegerDivCode>(node)
                                        : CodeOf<DivCode>(node);
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeDivKernel(
    const NodeInfo& node, Device& device) {
  return IsInteger(node.input_types[0])
             ? BinaryKernel<IntegerDivCode, IntTypeList>(node, device)
             : BinaryKernel<DivCode, FloatTypeList>(node, device);
}

// Exponents are widened first, which changes no result and keeps the number of
// loops small.
DType PowExponentType(DType base, DType exponent) {
  if (kSignedIntTypes.Has(exponent)) return DType::kInt64;
  if (kUnsignedIntTypes.Has(exponent)) return DType::kUint64;
  const bool in_float =
      base == DType::kFloat && ComputeType(exponent) == DType::kFloat;
  return in_float ? DType::kFloat : DType::kDouble;
}

template <typename Base>
ElementLoop PowLoop(DType exponent) {
  ElementLoop loop = nullptr;
  DispatchType(TypeList<int64_t, uint64_t, float, double>(), exponent,
               [&](auto tag) {
                 using E = typename decltype(tag)::Type;
                 loop = BinaryLoop<PowCode, Base, Base, E>;
               });
  return loop;
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakePowKernel(
    const NodeInfo& node, Device&) {
  const DType base = ComputeType(node.input_types[0]);
  const DType exponent = PowExponentType(base, node.input_types[1]);
  ElementLoop loop = nullptr;
  DispatchType(TypeList<float, double, int32_t, int64_t>(), base,
               [&](auto tag) {
                 loop = PowLoop<typename decltype(tag)::Type>(exponent);
               });
  return MakeElementwiseKernel({.loop = loop,
                                .operands = {0, 1},
                                .types = {base, exponent},
                                .result = base,
                                .grain = 4096});
}

// Min(x0, x1, x2) is Minimum(Minimum(x0, x1), x2); of one value, the value.
ScalarExpression Nested(std::string_view function, size_t inputs) {
  std::string code;
  for (size_t i = 1; i < inputs; ++i) {
    absl::StrAppend(&code, AbslView(function), "(");
  }
  code += "x0";
  for (size_t i = 1; i < inputs; ++i) absl::StrAppend(&code, ", x", i, ")");
  return {code, inputs == 1};
}

template <typename Code>
absl::StatusOr<std::unique_ptr<const Kernel>> MakeFoldKernel(
    const NodeInfo& node, Device&) {
  if (node.input_types.size() == 1) {
    return MakeElementwiseKernel(SameElements(node.input_types[0]));
  }
  const DType type = ComputeType(node.input_types[0]);
  ElementwiseCode code;
  code.loop = BinaryLoopFor<Code>(ComputeTypeList(), type);
  for (size_t i = 0; i < node.input_types.size(); ++i) {
    code.operands.push_back(i);
  }
  code.types = {type, type};
  code.result = type;
  code.fold = code.operands.size() != 2;
  return MakeElementwiseKernel(std::move(code));
}

template <typename Code>
absl::Status RegisterFold(
    OpRegistry& registry, std::string_view name, std::string_view doc,
    absl::StatusOr<ScalarExpression> (*expression)(const NodeInfo&)) {
  OpDef def;
  def.name = name;
  def.doc = doc;
  def.inputs = {{.name = "data", .types = kNumericTypes, .variadic = true}};
  def.outputs = {{.name = "result"}};
  def.infer = InferBroadcast;
  def.cost = ElementwiseCost;
  def.expression = expression;
  return registry.Register(std::move(def), MakeFoldKernel<Code>);
}

}  // namespace

absl::Status Register_onnx_Add(OpRegistry& registry) {
  return RegisterBinary<AddCode>(registry, "Add",
                                 "A + B with broadcasting; integers wrap.");
}

absl::Status Register_onnx_Sub(OpRegistry& registry) {
  return RegisterBinary<SubCode>(registry, "Sub",
                                 "A - B with broadcasting; integers wrap.");
}

absl::Status Register_onnx_Mul(OpRegistry& registry) {
  return RegisterBinary<MulCode>(registry, "Mul",
                                 "A * B with broadcasting; integers wrap.");
}

absl::Status Register_onnx_Div(OpRegistry& registry) {
  OpDef def = BinaryDef(
      "Div",
      "A / B with broadcasting. Integers are divided toward zero; a zero "
      "divisor is an error.");
  def.expression = DivExpression;
  return registry.Register(std::move(def), MakeDivKernel);
}

absl::Status Register_onnx_Pow(OpRegistry& registry) {
  OpDef def;
  def.name = "Pow";
  def.doc =
      "X to the power of Y with broadcasting, of X's type. Integer powers of "
      "integers are exact and wrap.";
  def.inputs = {{.name = "X", .types = kPowTypes, .group = -1},
                {.name = "Y", .types = kNumericTypes, .group = -1}};
  def.outputs = {{.name = "Z"}};
  def.infer = InferBroadcast;
  def.cost = ElementwiseCost;
  def.cpu_weight = kFunctionCpuWeight;
  def.expression = CodeOf<PowCode>;
  return registry.Register(std::move(def), MakePowKernel);
}

absl::Status Register_onnx_Min(OpRegistry& registry) {
  return RegisterFold<MinCode>(
      registry, "Min",
      "The least of the inputs, element by element, with broadcasting; NaN "
      "wins.",
      [](const NodeInfo& node) -> absl::StatusOr<ScalarExpression> {
        return Nested("Minimum", node.input_types.size());
      });
}

absl::Status Register_onnx_Max(OpRegistry& registry) {
  return RegisterFold<MaxCode>(
      registry, "Max",
      "The greatest of the inputs, element by element, with broadcasting; NaN "
      "wins.",
      [](const NodeInfo& node) -> absl::StatusOr<ScalarExpression> {
        return Nested("Maximum", node.input_types.size());
      });
}

}  // namespace weir
