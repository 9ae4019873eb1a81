#include "kernels/graph/node_inference.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

template <typename T>
std::vector<int64_t> Widen(const HostTensor& value, int64_t count) {
  const T* data = value.as<T>();
  std::vector<int64_t> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = static_cast<int64_t>(data[i]);
  }
  return result;
}

class NodeContext final : public InferContext {
 public:
  NodeContext(const LoweredNode& node, const NodeInputs& inputs)
      : node_(node), inputs_(inputs), outputs_(node.outputs.size()) {}

  const NodeInfo& node() const override { return node_.info; }

  const SymbolicShape& input_shape(size_t i) const override {
    return i < inputs_.shapes.size() ? inputs_.shapes[i] : unknown_;
  }

  std::optional<absl::Span<const int64_t>> HostInts(size_t i) const override {
    if (i >= inputs_.host_ints.size() || !inputs_.host_ints[i].has_value()) {
      return std::nullopt;
    }
    return absl::MakeConstSpan(*inputs_.host_ints[i]);
  }

  void SetOutput(size_t i, DType dtype, SymbolicShape shape) override {
    if (i < outputs_.size()) outputs_[i] = {dtype, std::move(shape)};
  }

  std::vector<TypedShape> TakeOutputs() { return std::move(outputs_); }

 private:
  const LoweredNode& node_;
  const NodeInputs& inputs_;
  const SymbolicShape unknown_;
  std::vector<TypedShape> outputs_;
};

absl::Status CheckOutput(size_t i, const TypedShape& output) {
  if (SizeOf(output.dtype) == 0) {
    return absl::InternalError(
        absl::StrCat("inference gave output ", i, " no element type"));
  }
  if (!output.shape.has_value()) return absl::OkStatus();
  Dims known;
  for (Dim dim : *output.shape) {
    if (dim.invalid()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a dimension of output ", i,
          " is negative or overflows: ", ShapeString(output.shape)));
    }
    known.push_back(dim.known() ? dim.value() : 1);
  }
  const auto bytes = ByteSize(output.dtype, known);
  if (!bytes.ok()) {
    return Annotate(bytes.status(), absl::StrCat("output ", i, ": "));
  }
  return absl::OkStatus();
}

}  // namespace

TensorMeta MakeMeta(DType dtype, Dims dims) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.elements = NumElements(dims).value();
  meta.bytes = static_cast<size_t>(meta.elements) * SizeOf(dtype);
  meta.dims = std::move(dims);
  return meta;
}

absl::StatusOr<std::vector<int64_t>> HostIntsOf(const LoweredNode& node,
                                                size_t i,
                                                const HostTensor& value,
                                                DigestBudget& budget) {
  if (node.def->digest != nullptr) {
    return node.def->digest(value, budget);
  }
  WEIR_ASSIGN_OR_RETURN(const int64_t count, NumElements(value.dims));
  const bool integers = IsInteger(value.dtype) || value.dtype == DType::kBool;
  if (!integers) return std::vector<int64_t>();
  if (count > static_cast<int64_t>(kMaxHostInts)) {
    return absl::UnimplementedError(absl::StrCat(
        "input ", i, " has ", count,
        " elements; a list that shapes depend on has at most ", kMaxHostInts));
  }
  switch (value.dtype) {
    case DType::kBool:
      return Widen<uint8_t>(value, count);
    case DType::kInt8:
      return Widen<int8_t>(value, count);
    case DType::kInt16:
      return Widen<int16_t>(value, count);
    case DType::kInt32:
      return Widen<int32_t>(value, count);
    case DType::kInt64:
      return Widen<int64_t>(value, count);
    case DType::kUint8:
      return Widen<uint8_t>(value, count);
    case DType::kUint16:
      return Widen<uint16_t>(value, count);
    case DType::kUint32:
      return Widen<uint32_t>(value, count);
    default:
      return Widen<uint64_t>(value, count);
  }
}

absl::StatusOr<std::vector<TypedShape>> InferNode(const LoweredNode& node,
                                                  const NodeInputs& inputs) {
  NodeContext context(node, inputs);
  const absl::Status inferred = node.def->infer(context);
  if (!inferred.ok()) return NodeError(inferred, node);
  std::vector<TypedShape> outputs = context.TakeOutputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const absl::Status status = CheckOutput(i, outputs[i]);
    if (!status.ok()) return NodeError(status, node);
  }
  return outputs;
}

}  // namespace weir
