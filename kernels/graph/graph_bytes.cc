#include "kernels/graph/graph_bytes.h"

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/graph/outline_steps.h"

namespace weir {
namespace {

// What an entry of a map takes beside what is in it.
constexpr size_t kBytesPerEntry = 64;

size_t BytesOf(const std::string& text) {
  return sizeof(std::string) + text.size();
}

size_t BytesOf(const std::vector<std::string>& texts) {
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += BytesOf(text);
  return bytes;
}

size_t BytesOf(const std::shared_ptr<const Constant>& constant) {
  if (constant == nullptr) return 0;
  const HostTensor& tensor = constant->tensor;
  const int64_t elements = ByteSize(tensor.dtype, tensor.dims).value_or(0);
  size_t bytes = sizeof(Constant) + static_cast<size_t>(elements);
  if (tensor.dtype != DType::kString || tensor.data == nullptr) return bytes;
  const auto* const texts = static_cast<const StringRef*>(tensor.data);
  for (size_t i = 0; i < static_cast<size_t>(elements) / sizeof(StringRef);
       ++i) {
    bytes += texts[i].size;
  }
  return bytes;
}

template <typename T>
size_t BytesOf(const std::vector<T>& numbers) {
  return numbers.size() * sizeof(T);
}
size_t BytesOf(int64_t) { return 0; }
size_t BytesOf(float) { return 0; }

size_t BytesOf(const std::vector<ValueDecl>& values) {
  size_t bytes = 0;
  for (const ValueDecl& value : values) {
    bytes += DeclBytes(value.name, value.shape);
  }
  return bytes;
}

size_t BytesOf(const GraphNode& node) {
  size_t bytes = sizeof(node) + node.name.size() + node.domain.size() +
                 node.op.size() + BytesOf(node.inputs) + BytesOf(node.outputs);
  for (const auto& [name, value] : node.attributes.all()) {
    bytes += BytesOf(name) + sizeof(value) +
             std::visit([](const auto& held) { return BytesOf(held); }, value);
  }
  return bytes;
}

}  // namespace

size_t GraphBytes(const Graph& graph) {
  size_t bytes = sizeof(graph) + BytesOf(graph.inputs) +
                 BytesOf(graph.outputs) + BytesOf(graph.declared_outputs) +
                 BytesOf(graph.symbols);
  for (const GraphNode& node : graph.nodes) bytes += BytesOf(node);
  for (const auto& [name, constant] : graph.constants) {
    bytes += kBytesPerEntry + BytesOf(name) + BytesOf(constant);
  }
  for (const auto& [domain, opset] : graph.opsets) {
    bytes += kBytesPerEntry + BytesOf(domain);
  }
  return bytes;
}

}  // namespace weir
