#include "kernels/ops/constant.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

constexpr int64_t kGrainBytes = 256 << 10;

template <typename T>
Constant FromVector(DType dtype, Dims dims, std::vector<T> values) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  Constant constant;
  constant.tensor = {dtype, std::move(dims), owner->data()};
  constant.owner = std::move(owner);
  return constant;
}

template <typename T>
Dims Length(const std::vector<T>& values) {
  return {static_cast<int64_t>(values.size())};
}

absl::Status InferConstant(InferContext& context) {
  WEIR_ASSIGN_OR_RETURN(const Constant value, ConstantValue(context.node()));
  context.SetOutput(0, value.tensor.dtype, ToSymbolic(value.tensor.dims));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeConstantKernel(
    const NodeInfo& node, Device&) {
  WEIR_ASSIGN_OR_RETURN(Constant value, ConstantValue(node));
  return MakeKernel([value = std::move(value)](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const size_t bytes = args.outputs[0].bytes;
    return RunFunction([value, bytes](const RunArgs& run) {
      if (bytes > 0) {
        std::memcpy(run.outputs[0], value.tensor.data, bytes);
      }
      return absl::OkStatus();
    });
  });
}

// -- ConstantOfShape ----------------------------------------------------------

absl::Status InferConstantOfShape(InferContext& context) {
  WEIR_ASSIGN_OR_RETURN(const Fill fill, FillOf(context.node()));
  WEIR_RETURN_IF_ERROR(CheckRank(context, 0, 1));
  SymbolicShape shape;
  if (const auto dims = context.HostInts(0)) {
    WEIR_RETURN_IF_ERROR(NumElements(*dims).status());
    shape = ToSymbolic(*dims);
  } else if (const auto rank = KnownElements(context, 0)) {
    if (*rank > kMaxRank) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", *rank, " is more than ", kMaxRank));
    }
    shape = SymbolicDims(static_cast<size_t>(*rank));
  }
  context.SetOutput(0, fill.dtype, std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeFillKernel(
    const NodeInfo& node, Device&) {
  WEIR_ASSIGN_OR_RETURN(const Fill fill, FillOf(node));
  return MakeKernel([=](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const int64_t elements = args.outputs[0].elements;
    return RunFunction([=](const RunArgs& run) {
      DispatchSize(SizeOf(fill.dtype), [&](auto tag) {
        using T = typename decltype(tag)::Type;
        T element;
        std::memcpy(&element, &fill.pattern,
                    std::min(sizeof(T), sizeof(fill.pattern)));
        T* target = static_cast<T*>(run.outputs[0]);
        ParallelRange(run.team, elements,
                      kGrainBytes / static_cast<int64_t>(sizeof(T)),
                      [&](int64_t begin, int64_t end) {
                        std::fill(target + begin, target + end, element);
                      });
      });
      return absl::OkStatus();
    });
  });
}

}  // namespace

absl::StatusOr<Constant> ConstantValue(const NodeInfo& node) {
  const Attributes& attributes = node.attributes;
  if (attributes.all().size() != 1) {
    return absl::InvalidArgumentError(
        "a Constant has exactly one value attribute");
  }
  const std::string& name = attributes.all()[0].first;
  if (name == "value_float") {
    return FromVector<float>(DType::kFloat, {}, {attributes.Float(name, 0)});
  }
  if (name == "value_int") {
    return FromVector<int64_t>(DType::kInt64, {}, {attributes.Int(name, 0)});
  }
  if (name == "value_string") {
    return TextConstant({},
                        std::vector<std::string>{attributes.String(name, "")});
  }
  if (name == "value_floats") {
    std::vector<float> values = attributes.Floats(name);
    Dims dims = Length(values);
    return FromVector(DType::kFloat, std::move(dims), std::move(values));
  }
  if (name == "value_ints") {
    std::vector<int64_t> values = attributes.Ints(name);
    Dims dims = Length(values);
    return FromVector(DType::kInt64, std::move(dims), std::move(values));
  }
  if (name == "value_strings") {
    const std::vector<std::string> values = attributes.Strings(name);
    Dims dims = Length(values);
    return TextConstant(std::move(dims), values);
  }
  const auto tensor = attributes.Tensor(name);
  if (tensor == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("attribute \"", name, "\" has no value"));
  }
  return *tensor;
}

absl::StatusOr<Fill> FillOf(const NodeInfo& node) {
  Fill fill;
  const auto value = node.attributes.Tensor("value");
  if (value == nullptr) return fill;
  const HostTensor& tensor = value->tensor;
  WEIR_ASSIGN_OR_RETURN(const int64_t elements, NumElements(tensor.dims));
  if (elements != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attribute \"value\" has ", elements, " elements where one is needed"));
  }
  if (tensor.dtype == DType::kString) {
    return absl::UnimplementedError("\"value\" cannot be a string");
  }
  fill.dtype = tensor.dtype;
  std::memcpy(&fill.pattern, tensor.data, SizeOf(tensor.dtype));
  return fill;
}

absl::Status Register_onnx_Constant(OpRegistry& registry) {
  OpDef def;
  def.name = "Constant";
  def.doc = "A tensor given by exactly one of the attributes.";
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"value", AttributeType::kTensor, false, "The tensor."},
      {"value_float", AttributeType::kFloat, false, "A scalar float."},
      {"value_floats", AttributeType::kFloats, false, "A 1-D float tensor."},
      {"value_int", AttributeType::kInt, false, "A scalar int64."},
      {"value_ints", AttributeType::kInts, false, "A 1-D int64 tensor."},
      {"value_string", AttributeType::kString, false, "A scalar string."},
      {"value_strings", AttributeType::kStrings, false,
       "A 1-D string tensor."}};
  def.infer = InferConstant;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeConstantKernel);
}

absl::Status Register_onnx_ConstantOfShape(OpRegistry& registry) {
  OpDef def;
  def.name = "ConstantOfShape";
  def.doc = "A tensor of the given shape, every element the same value.";
  def.inputs = {{.name = "input", .types = {DType::kInt64}}};
  def.outputs = {{.name = "output"}};
  def.attributes = {{"value", AttributeType::kTensor, false,
                     "A tensor of one element; default float 0."}};
  def.host_inputs = 1u << 0;
  def.infer = InferConstantOfShape;
  def.cost = OutputCost;
  return registry.Register(std::move(def), MakeFillKernel);
}

}  // namespace weir
