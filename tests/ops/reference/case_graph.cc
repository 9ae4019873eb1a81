#include "tests/ops/reference/case_graph.h"

#include <onnx/onnx_pb.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

template <typename T, typename Field>
std::string Packed(const Field& field) {
  std::string bytes;
  for (const auto element : field) {
    const auto value = static_cast<T>(element);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

// TensorProto keeps elements raw or in a field that depends on the type.
std::string ElementBytes(const onnx::TensorProto& proto) {
  if (proto.has_raw_data()) return proto.raw_data();
  switch (proto.data_type()) {
    case onnx::TensorProto::FLOAT:
      return Packed<float>(proto.float_data());
    case onnx::TensorProto::DOUBLE:
      return Packed<double>(proto.double_data());
    case onnx::TensorProto::INT64:
      return Packed<int64_t>(proto.int64_data());
    case onnx::TensorProto::UINT64:
      return Packed<uint64_t>(proto.uint64_data());
    case onnx::TensorProto::UINT32:
      return Packed<uint32_t>(proto.uint64_data());
    case onnx::TensorProto::INT32:
      return Packed<int32_t>(proto.int32_data());
    case onnx::TensorProto::INT16:
    case onnx::TensorProto::UINT16:
    case onnx::TensorProto::FLOAT16:
    case onnx::TensorProto::BFLOAT16:
      return Packed<uint16_t>(proto.int32_data());
    default:
      return Packed<uint8_t>(proto.int32_data());
  }
}

std::shared_ptr<const Constant> MakeConstant(const onnx::TensorProto& proto) {
  // The bytes and their alignment come from a vector of the widest type.
  const std::string bytes = ElementBytes(proto);
  auto owner = std::make_shared<std::vector<uint64_t>>(bytes.size() / 8 + 1);
  bytes.copy(reinterpret_cast<char*>(owner->data()), bytes.size());
  auto constant = std::make_shared<Constant>();
  constant->tensor.dtype =
      DTypeFromOnnx(proto.data_type()).value_or(DType::kInvalid);
  constant->tensor.dims.assign(proto.dims().begin(), proto.dims().end());
  constant->tensor.data = owner->data();
  constant->owner = std::move(owner);
  return constant;
}

absl::StatusOr<AttributeValue> MakeAttribute(
    const onnx::AttributeProto& proto) {
  switch (proto.type()) {
    case onnx::AttributeProto::INT:
      return AttributeValue(int64_t{proto.i()});
    case onnx::AttributeProto::FLOAT:
      return AttributeValue(proto.f());
    case onnx::AttributeProto::STRING:
      return AttributeValue(proto.s());
    case onnx::AttributeProto::TENSOR:
      return AttributeValue(MakeConstant(proto.t()));
    case onnx::AttributeProto::INTS:
      return AttributeValue(
          std::vector<int64_t>(proto.ints().begin(), proto.ints().end()));
    case onnx::AttributeProto::FLOATS:
      return AttributeValue(
          std::vector<float>(proto.floats().begin(), proto.floats().end()));
    case onnx::AttributeProto::STRINGS:
      return AttributeValue(std::vector<std::string>(proto.strings().begin(),
                                                     proto.strings().end()));
    default:
      return absl::UnimplementedError(
          absl::StrCat("attribute '", proto.name(), "' of type ",
                       static_cast<int>(proto.type())));
  }
}

ValueDecl Declare(const onnx::ValueInfoProto& info) {
  const onnx::TypeProto::Tensor& type = info.type().tensor_type();
  ValueDecl decl;
  decl.name = info.name();
  decl.dtype = DTypeFromOnnx(type.elem_type()).value_or(DType::kInvalid);
  absl::InlinedVector<Dim, 6> dims;
  for (const auto& dim : type.shape().dim()) {
    dims.push_back(dim.has_dim_value() ? Dim(dim.dim_value()) : Dim());
  }
  decl.shape = std::move(dims);
  return decl;
}

}  // namespace

absl::StatusOr<Graph> GraphOfCase(const std::string& model) {
  onnx::ModelProto proto;
  if (!proto.ParseFromString(model)) {
    return absl::InvalidArgumentError("the case's model is no ONNX model");
  }
  Graph graph;
  for (const auto& opset : proto.opset_import()) {
    graph.opsets[opset.domain()] = static_cast<int>(opset.version());
  }
  for (const auto& tensor : proto.graph().initializer()) {
    graph.constants[tensor.name()] = MakeConstant(tensor);
  }
  for (const auto& input : proto.graph().input()) {
    if (graph.constants.count(input.name()) == 0) {
      graph.inputs.push_back(Declare(input));
    }
  }
  for (const auto& output : proto.graph().output()) {
    graph.outputs.push_back(output.name());
  }
  for (const auto& from : proto.graph().node()) {
    GraphNode node;
    node.name = from.name();
    node.domain = from.domain();
    node.op = from.op_type();
    node.inputs.assign(from.input().begin(), from.input().end());
    node.outputs.assign(from.output().begin(), from.output().end());
    for (const auto& attribute : from.attribute()) {
      WEIR_ASSIGN_OR_RETURN(AttributeValue value, MakeAttribute(attribute));
      node.attributes.Set(attribute.name(), std::move(value));
    }
    graph.nodes.push_back(std::move(node));
  }
  return graph;
}

}  // namespace weir
