#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/convert.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

constexpr int64_t kGrain = 32768;

absl::StatusOr<DType> TargetType(const NodeInfo& node) {
  const int64_t number = node.attributes.Int("to", 0);
  const std::optional<DType> dtype = DTypeFromOnnx(number);
  if (!dtype.has_value() || *dtype == DType::kString) {
    return absl::UnimplementedError(
        absl::StrCat("cannot cast to ONNX element type ", number));
  }
  return *dtype;
}

absl::Status InferCast(InferContext& context) {
  WEIR_ASSIGN_OR_RETURN(const DType to, TargetType(context.node()));
  context.SetOutput(0, to, context.input_shape(0));
  return absl::OkStatus();
}

absl::StatusOr<ScalarExpression> CastExpression(const NodeInfo& node) {
  WEIR_ASSIGN_OR_RETURN(const DType to, TargetType(node));
  if (to == node.input_types[0]) return ScalarExpression{"x0", true};
  return ScalarExpression{ComputeType(to) == to ? "Convert<R>(x0)"
                                                : "ToHalfSource(x0)"};
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeCastKernel(
    const NodeInfo& node, Device&) {
  WEIR_ASSIGN_OR_RETURN(const DType to, TargetType(node));
  const DType from = node.input_types[0];
  const ConvertLoop loop = FindConvertLoop(from, to);
  if (loop == nullptr) {
    return absl::UnimplementedError("strings are not cast");
  }
  const int64_t from_size = static_cast<int64_t>(SizeOf(from));
  const int64_t to_size = static_cast<int64_t>(SizeOf(to));
  return MakeKernel([=](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const int64_t elements = args.outputs[0].elements;
    return RunFunction([=](const RunArgs& run) {
      const std::byte* source = static_cast<const std::byte*>(run.inputs[0]);
      std::byte* target = static_cast<std::byte*>(run.outputs[0]);
      ParallelRange(run.team, elements, kGrain,
                    [&](int64_t begin, int64_t end) {
                      loop(source + begin * from_size, target + begin * to_size,
                           end - begin);
                    });
      return absl::OkStatus();
    });
  });
}

}  // namespace

absl::Status Register_onnx_Cast(OpRegistry& registry) {
  OpDef def;
  def.name = "Cast";
  def.doc =
      "Converts element types. Floating to integer truncates toward zero and "
      "saturates, NaN becomes 0; integers wrap; bool is \"not zero\".";
  def.inputs = {{.name = "input", .types = kFixedTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"to", AttributeType::kInt, true, "Element type, ONNX's number."},
      {"saturate", AttributeType::kInt, false,
       "Of 8-bit floats, which weir does not have: no effect."},
      {"round_mode", AttributeType::kString, false,
       "Of 8-bit floats, which weir does not have: no effect."}};
  def.infer = InferCast;
  def.cost = ElementwiseCost;
  def.expression = CastExpression;
  return registry.Register(std::move(def), MakeCastKernel);
}

}  // namespace weir
