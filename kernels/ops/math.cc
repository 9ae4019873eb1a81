#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "kernels/ops/elementwise.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/vector_math.h"

namespace weir {
namespace {

WEIR_UNARY(NegCode, Neg(x0))
WEIR_UNARY(AbsCode, Abs(x0))
WEIR_UNARY(SqrtCode, Sqrt(x0))
WEIR_UNARY(ExpCode, Exp(x0))
WEIR_UNARY(LogCode, Log(x0))
WEIR_UNARY(ErfCode, Erf(x0))
WEIR_UNARY(TanhCode, Tanh(x0))
WEIR_UNARY(SigmoidCode, Sigmoid(x0))
WEIR_UNARY(ReluCode, Relu(x0))
WEIR_UNARY(GeluCode, Gelu(x0))
WEIR_UNARY(GeluTanhCode, GeluTanh(x0))

// Elements worth a thread for functions of about 10 ns.
constexpr int64_t kCostly = 4096;

using SignedNumberList = Join<FloatTypeList, SignedTypeList>;

OpDef UnaryDef(std::string_view name, std::string_view doc, TypeSet types) {
  OpDef def;
  def.name = name;
  def.doc = doc;
  def.inputs = {{.name = "X", .types = types}};
  def.outputs = {{.name = "Y"}};
  def.infer = InferSameAsInput;
  def.cost = ElementwiseCost;
  return def;
}

template <typename Code, typename List = FloatTypeList,
          int64_t kGrain = kCostly>
absl::Status RegisterUnary(OpRegistry& registry, std::string_view name,
                           std::string_view doc, TypeSet types = kFloatTypes) {
  OpDef def = UnaryDef(name, doc, types);
  if (kGrain == kCostly) def.cpu_weight = kFunctionCpuWeight;
  def.expression = CodeOf<Code>;
  return registry.Register(std::move(def), UnaryKernel<Code, List, kGrain>);
}

// -- Erf ----------------------------------------------------------------------

FaultCode FloatErfLoop(const void* const* in, const int64_t*, void* out,
                       int64_t n) {
  ErfOfFloats(static_cast<const float*>(in[0]), n, static_cast<float*>(out));
  return FaultCode::kNone;
}

// The scalar function takes ten times as long as the vectors' own.
absl::StatusOr<std::unique_ptr<const Kernel>> MakeErfKernel(
    const NodeInfo& node, Device& device) {
  const DType type = ComputeType(node.input_types[0]);
  if (type != DType::kFloat) {
    return UnaryKernel<ErfCode, ComputeTypeList, kCostly>(node, device);
  }
  return MakeElementwiseKernel(
      {.loop = FloatErfLoop, .operands = {0}, .types = {type}, .result = type});
}

// -- Gelu ---------------------------------------------------------------------

absl::StatusOr<bool> GeluByTanh(const NodeInfo& node) {
  const std::string kind = node.attributes.String("approximate", "none");
  if (kind != "none" && kind != "tanh") {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute \"approximate\" is ", QuoteStart(kind),
                     ", not none or tanh"));
  }
  return kind == "tanh";
}

absl::StatusOr<ScalarExpression> GeluExpression(const NodeInfo& node) {
  WEIR_ASSIGN_OR_RETURN(const bool by_tanh, GeluByTanh(node));
  return by_tanh ? CodeOf<GeluTanhCode>(node) : CodeOf<GeluCode>(node);
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeGeluKernel(
    const NodeInfo& node, Device& device) {
  WEIR_ASSIGN_OR_RETURN(const bool by_tanh, GeluByTanh(node));
  return by_tanh
             ? UnaryKernel<GeluTanhCode, FloatTypeList, kCostly>(node, device)
             : UnaryKernel<GeluCode, FloatTypeList, kCostly>(node, device);
}

// -- Clip ---------------------------------------------------------------------

WEIR_BINARY(AtLeastCode, Maximum(x0, x1))
WEIR_BINARY(AtMostCode, Minimum(x0, x1))

struct ClipCode {
  template <typename T>
  T operator()(T x, T low, T high) const {
    return scalar::Clip(x, low, high);
  }
};

absl::Status InferClip(InferContext& context) {
  for (size_t i = 1; i <= 2; ++i) {
    const auto elements = KnownElements(context, i);
    if (elements.has_value() && *elements != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("input ", i, " of Clip has ", *elements,
                       " elements where one is needed"));
    }
  }
  return InferSameAsInput(context);
}

absl::StatusOr<ScalarExpression> ClipExpression(const NodeInfo& node) {
  const bool low = node.HasInput(1);
  const bool high = node.HasInput(2);
  if (!low && !high) return ScalarExpression{"x0", true};
  return ScalarExpression{low && high ? "Clip(x0, x1, x2)"
                          : low       ? "Maximum(x0, x1)"
                                      : "Minimum(x0, x2)"};
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeClipKernel(
    const NodeInfo& node, Device&) {
  if (!node.HasInput(1) && !node.HasInput(2)) {
    return MakeElementwiseKernel(SameElements(node.input_types[0]));
  }
  const DType type = ComputeType(node.input_types[0]);
  ElementwiseCode code;
  code.operands = {0};
  code.types = {type, type, type};
  code.result = type;
  for (size_t i = 1; i <= 2; ++i) {
    if (node.HasInput(i)) code.operands.push_back(i);
  }
  if (code.operands.size() == 3) {
    DispatchType(ComputeTypeList(), type, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      code.loop = TernaryLoop<ClipCode, T, T, T, T>;
    });
  } else if (node.HasInput(1)) {
    code.loop = BinaryLoopFor<AtLeastCode>(ComputeTypeList(), type);
  } else {
    code.loop = BinaryLoopFor<AtMostCode>(ComputeTypeList(), type);
  }
  return MakeElementwiseKernel(std::move(code));
}

}  // namespace

absl::Status Register_onnx_Neg(OpRegistry& registry) {
  return RegisterUnary<NegCode, SignedNumberList, 32768>(
      registry, "Neg", "-X; integers wrap.", kFloatTypes | kSignedIntTypes);
}

absl::Status Register_onnx_Abs(OpRegistry& registry) {
  return RegisterUnary<AbsCode, ComputeTypeList, 32768>(
      registry, "Abs", "The magnitude of X; integers wrap.", kNumericTypes);
}

absl::Status Register_onnx_Sqrt(OpRegistry& registry) {
  return RegisterUnary<SqrtCode>(registry, "Sqrt",
                                 "The square root; NaN below 0.");
}

absl::Status Register_onnx_Exp(OpRegistry& registry) {
  return RegisterUnary<ExpCode>(registry, "Exp", "e to the power of X.");
}

absl::Status Register_onnx_Log(OpRegistry& registry) {
  return RegisterUnary<LogCode>(registry, "Log",
                                "The natural logarithm; NaN below 0.");
}

absl::Status Register_onnx_Erf(OpRegistry& registry) {
  OpDef def = UnaryDef("Erf", "The error function.", kNumericTypes);
  def.cpu_weight = kFunctionCpuWeight;
  def.expression = CodeOf<ErfCode>;
  return registry.Register(std::move(def), MakeErfKernel);
}

absl::Status Register_onnx_Tanh(OpRegistry& registry) {
  return RegisterUnary<TanhCode>(registry, "Tanh", "The hyperbolic tangent.");
}

absl::Status Register_onnx_Sigmoid(OpRegistry& registry) {
  return RegisterUnary<SigmoidCode>(registry, "Sigmoid", "1 / (1 + exp(-X)).");
}

absl::Status Register_onnx_Relu(OpRegistry& registry) {
  return RegisterUnary<ReluCode, SignedNumberList, 32768>(
      registry, "Relu", "X where it is positive, else 0; NaN stays.",
      kFloatTypes | kSignedIntTypes);
}

absl::Status Register_onnx_Gelu(OpRegistry& registry) {
  OpDef def = UnaryDef("Gelu",
                       "X times the normal distribution function of X, exact "
                       "or by its tanh approximation.",
                       kFloatTypes);
  def.attributes = {{"approximate", AttributeType::kString, false,
                     "\"none\" (default) or \"tanh\"."}};
  def.cpu_weight = kFunctionCpuWeight;
  def.expression = GeluExpression;
  return registry.Register(std::move(def), MakeGeluKernel);
}

absl::Status Register_onnx_Clip(OpRegistry& registry) {
  OpDef def;
  def.name = "Clip";
  def.doc = "X limited to [min, max]; either bound may be missing.";
  def.inputs = {{.name = "input", .types = kNumericTypes},
                {.name = "min", .types = kNumericTypes, .optional = true},
                {.name = "max", .types = kNumericTypes, .optional = true}};
  def.outputs = {{.name = "output"}};
  def.infer = InferClip;
  def.cost = ElementwiseCost;
  def.expression = ClipExpression;
  return registry.Register(std::move(def), MakeClipKernel);
}

}  // namespace weir
