#include "kernels/ops/identity.h"

#include <algorithm>

#include "kernels/ops/copy_kernel.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

absl::Status InferShape(InferContext& context) {
  SymbolicDims dims(1);
  if (const SymbolicShape& shape = context.input_shape(0)) {
    const ShapeWindow window = ShapeWindowOf(context.node(), shape->size());
    dims[0] = static_cast<int64_t>(window.end - window.begin);
  }
  context.SetOutput(0, DType::kInt64, dims);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeShapeKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const Dims& dims = args.inputs[0].dims;
    const ShapeWindow window = ShapeWindowOf(node, dims.size());
    const Dims values(dims.begin() + window.begin, dims.begin() + window.end);
    return RunFunction([values](const RunArgs& run) {
      std::copy(values.begin(), values.end(),
                static_cast<int64_t*>(run.outputs[0]));
      return absl::OkStatus();
    });
  });
}

}  // namespace

ShapeWindow ShapeWindowOf(const NodeInfo& node, size_t rank) {
  const int64_t n = static_cast<int64_t>(rank);
  const auto clamp = [n](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + n : axis, 0, n);
  };
  const int64_t begin = clamp(node.attributes.Int("start", 0));
  const int64_t end = clamp(node.attributes.Int("end", n));
  return {static_cast<size_t>(begin),
          static_cast<size_t>(std::max(begin, end))};
}

absl::Status Register_onnx_Identity(OpRegistry& registry) {
  OpDef def;
  def.name = "Identity";
  def.doc = "The input, unchanged.";
  def.inputs = {{.name = "input", .types = kAllTypes}};
  def.outputs = {{.name = "output"}};
  def.aliases_input = true;
  def.infer = InferSameAsInput;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeCopyKernel);
}

absl::Status Register_onnx_Shape(OpRegistry& registry) {
  OpDef def;
  def.name = "Shape";
  def.doc = "The dimensions of the input as a 1-D int64 tensor.";
  def.inputs = {{.name = "data", .types = kAllTypes}};
  def.outputs = {{.name = "shape"}};
  def.attributes = {
      {"start", AttributeType::kInt, false,
       "First dimension, default 0; negative counts from the end."},
      {"end", AttributeType::kInt, false,
       "One past the last dimension, default the rank."}};
  def.shape_only = true;
  def.infer = InferShape;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeShapeKernel);
}

}  // namespace weir
