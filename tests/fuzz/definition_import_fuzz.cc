// Any bytes as a GraphDefinition: a graph with all that the message has, or a
// status; what imports passes or fails validation and inference. The first byte
// says for which of its inputs the request gives types.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/infer.h"
#include "kernels/ops/registry.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/models/bad_text.h"
#include "server/models/definition_import.h"

namespace weir {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

template <typename A, typename B, typename Same = std::equal_to<>>
bool Equal(const A& a, const B& b, Same same = {}) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same);
}

// As the message has strings: each behind its length.
std::string Packed(const HostTensor& tensor, size_t count) {
  std::string packed;
  const auto* strings = static_cast<const StringRef*>(tensor.data);
  for (size_t i = 0; i < count; ++i) {
    const auto size = static_cast<uint32_t>(strings[i].size);
    packed.append(reinterpret_cast<const char*>(&size), sizeof(size));
    packed.append(strings[i].data, strings[i].size);
  }
  return packed;
}

void Compare(const v1::TensorValue& from, const HostTensor& tensor) {
  Check(DTypeFromOnnx(from.spec().dtype()) == tensor.dtype);
  Check(Equal(from.spec().shape(), tensor.dims));
  const auto count = NumElements(tensor.dims);
  const auto bytes = ByteSize(tensor.dtype, tensor.dims);
  Check(count.ok() && bytes.ok());
  std::string raw = from.raw();
  if (tensor.dtype == DType::kString) {
    Check(Packed(tensor, static_cast<size_t>(*count)) == raw);
    return;
  }
  if (tensor.dtype == DType::kBool) {
    for (char& byte : raw) byte = byte != 0 ? 1 : 0;
  }
  Check(static_cast<size_t>(*bytes) == raw.size());
  Check(std::memcmp(tensor.data, raw.data(), raw.size()) == 0);
}

// NaNs too.
bool Same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void Compare(const v1::Attribute& from, const AttributeValue& to) {
  switch (from.value_case()) {
    case v1::Attribute::kI:
      return Check(std::get<int64_t>(to) == from.i());
    case v1::Attribute::kF:
      return Check(Same(std::get<float>(to), from.f()));
    case v1::Attribute::kS:
      return Check(std::get<std::string>(to) == from.s());
    case v1::Attribute::kInts:
      return Check(
          Equal(std::get<std::vector<int64_t>>(to), from.ints().values()));
    case v1::Attribute::kFloats:
      return Check(Equal(std::get<std::vector<float>>(to),
                         from.floats().values(), Same));
    case v1::Attribute::kStrings:
      return Check(Equal(std::get<std::vector<std::string>>(to),
                         from.strings().values()));
    case v1::Attribute::kTensor:
      return Compare(from.tensor(),
                     std::get<std::shared_ptr<const Constant>>(to)->tensor);
    case v1::Attribute::VALUE_NOT_SET:
      Check(false);
  }
}

void Compare(const v1::Node& from, const GraphNode& node) {
  Check(node.name == from.name() && node.op == from.op());
  Check(node.domain == (from.domain() == "ai.onnx" ? "" : from.domain()));
  Check(Equal(node.inputs, from.inputs()));
  Check(Equal(node.outputs, from.outputs()));
  Check(node.attributes.all().size() ==
        static_cast<size_t>(from.attributes_size()));
  for (const v1::Attribute& attribute : from.attributes()) {
    const AttributeValue* const value = node.attributes.Find(attribute.name());
    Check(value != nullptr);
    Compare(attribute, *value);
  }
}

void Compare(const v1::GraphInput& from, const ValueDecl& input) {
  Check(input.name == from.name());
  if (!from.has_spec()) return;
  Check(DTypeFromOnnx(from.spec().dtype()) == input.dtype);
  Check(input.shape.has_value());
  Check(Equal(from.spec().shape(), *input.shape,
              [](int64_t extent, const Dim& dim) {
                return extent == (dim.known() ? dim.value() : -1);
              }));
}

// Constants are taken out of the definition, so it is compared with what it
// was.
void Compare(const v1::GraphDefinition& from, const Graph& graph) {
  Check(graph.inputs.size() == static_cast<size_t>(from.inputs_size()));
  for (int i = 0; i < from.inputs_size(); ++i) {
    Compare(from.inputs(i), graph.inputs[static_cast<size_t>(i)]);
  }
  Check(Equal(graph.outputs, from.outputs()));
  Check(graph.nodes.size() == static_cast<size_t>(from.nodes_size()));
  for (int i = 0; i < from.nodes_size(); ++i) {
    Compare(from.nodes(i), graph.nodes[static_cast<size_t>(i)]);
  }
  Check(graph.constants.size() == static_cast<size_t>(from.constants_size()));
  for (const v1::NamedTensor& constant : from.constants()) {
    Compare(constant.value(), graph.constants.at(constant.name())->tensor);
  }
}

void Run(std::string_view bytes, unsigned which) {
  static const auto& registry = *MakeOpRegistry().release();
  // Which has a line for each text of a broken message.
  [[maybe_unused]] static const auto log =
      google::protobuf::SetLogHandler(nullptr);
  // Those are refused by what comes before it.
  if (FindBadText(*v1::GraphDefinition::descriptor(), bytes).has_value())
    return;
  v1::GraphDefinition definition;
  if (!definition.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return;
  std::vector<GivenInput> given;
  for (int i = 0; i < definition.inputs_size() && i < 6; ++i) {
    if ((which >> i & 1) == 0) continue;
    given.push_back({definition.inputs(i).name(), DType::kFloat, i % 3});
  }
  if ((which & 0xC0) == 0xC0) given.push_back({"nobody", DType::kInt64, 1});
  const auto graph = ImportDefinition(definition, given);
  if (!graph.ok()) {
    return Check(absl::IsInvalidArgument(graph.status()) ||
                 absl::IsUnimplemented(graph.status()) ||
                 absl::IsResourceExhausted(graph.status()));
  }
  Compare(definition, *graph);
  const auto order = Validate(*graph, registry);
  if (!order.ok()) return;
  (void)InferShapes(*graph, *order, registry);
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  weir::Run({reinterpret_cast<const char*>(data) + 1, size - 1}, data[0]);
  return 0;
}
