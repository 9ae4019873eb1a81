// Bytes become a graph of real operators, with names that collide, cycles, odd
// shapes and constants; the whole way to a plan must give a status or a plan.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device/devices.h"
#include "kernels/graph/program.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint8_t Next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  bool empty() const { return size_ == 0; }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Few names, so that they meet. The empty one is a missing input.
std::string Name(Bytes& bytes) {
  const unsigned n = bytes.Next() % 24;
  return n == 23 ? "" : std::string(1, static_cast<char>('a' + n));
}

DType Type(Bytes& bytes) {
  constexpr DType kTypes[] = {DType::kFloat,  DType::kInt64,   DType::kFloat,
                              DType::kBool,   DType::kFloat16, DType::kUint8,
                              DType::kString, DType::kInvalid};
  return kTypes[bytes.Next() % 8];
}

int64_t Extent(Bytes& bytes) {
  constexpr int64_t kOdd[] = {-1, -2, int64_t{1} << 40, int64_t{1} << 62};
  const uint8_t n = bytes.Next();
  return n >= 252 ? kOdd[n - 252] : n % 5;
}

std::shared_ptr<const Constant> SmallConstant(Bytes& bytes) {
  auto owner = std::make_shared<std::vector<int64_t>>();
  auto constant = std::make_shared<Constant>();
  const int count = bytes.Next() % 6;
  for (int i = 0; i < count; ++i) owner->push_back(Extent(bytes));
  constant->tensor.dtype =
      bytes.Next() % 2 == 0 ? DType::kInt64 : DType::kDouble;
  if (bytes.Next() % 4 != 0) constant->tensor.dims = {count};
  if (constant->tensor.dims.empty()) owner->push_back(1);
  constant->tensor.data = owner->data();
  constant->owner = std::move(owner);
  return constant;
}

void AddAttribute(Bytes& bytes, const OpDef& def, Attributes* attributes) {
  if (def.attributes.empty()) return;
  const AttributeDef& from =
      def.attributes[bytes.Next() % def.attributes.size()];
  const std::string name(from.name);
  switch (from.type) {
    case AttributeType::kInt:
      attributes->Set(name, Extent(bytes));
      break;
    case AttributeType::kFloat:
      attributes->Set(name, static_cast<float>(bytes.Next()));
      break;
    case AttributeType::kInts: {
      std::vector<int64_t> values(bytes.Next() % 5);
      for (int64_t& value : values) value = Extent(bytes);
      attributes->Set(name, std::move(values));
      break;
    }
    case AttributeType::kString:
      attributes->Set(name, std::string("SAME_UPPER"));
      break;
    case AttributeType::kTensor:
      attributes->Set(name, SmallConstant(bytes));
      break;
    default:
      attributes->Set(name, std::vector<float>(bytes.Next() % 4, 1.0f));
  }
}

Graph MakeGraph(Bytes& bytes, const std::vector<const OpDef*>& operators) {
  Graph graph;
  graph.symbols = {"N"};
  graph.opsets[""] = bytes.Next() % 28;
  if (graph.opsets[""] < 11) graph.opsets[""] = 17;
  for (int i = bytes.Next() % 4; i > 0; --i) {
    ValueDecl& input = graph.inputs.emplace_back();
    input.name = Name(bytes);
    input.dtype = Type(bytes);
    const uint8_t rank = bytes.Next() % 10;
    if (rank == 9) continue;
    SymbolicDims dims;
    for (int d = 0; d < rank; ++d) {
      const int64_t extent = Extent(bytes);
      dims.push_back(extent == 0 ? Dim::Symbol(bytes.Next() % 2) : Dim(extent));
    }
    input.shape = std::move(dims);
  }
  for (int i = bytes.Next() % 4; i > 0; --i) {
    graph.constants[Name(bytes)] = SmallConstant(bytes);
  }
  while (!bytes.empty() && graph.nodes.size() < 32) {
    const OpDef& def = *operators[bytes.Next() % operators.size()];
    GraphNode& node = graph.nodes.emplace_back();
    node.domain = std::string(def.domain);
    node.op = std::string(def.name);
    for (int k = bytes.Next() % 4; k > 0; --k) {
      node.inputs.push_back(Name(bytes));
    }
    for (int k = bytes.Next() % 3 + 1; k > 0; --k) {
      node.outputs.push_back(Name(bytes));
    }
    for (int k = bytes.Next() % 3; k > 0; --k) {
      AddAttribute(bytes, def, &node.attributes);
    }
    graph.outputs = {node.outputs[0]};
  }
  return graph;
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& registry = *weir::MakeOpRegistry().release();
  static weir::Device& device =
      *weir::MakeCpuDevice({.cpu_threads = 1, .cache_dir = ""}).release();
  static const auto& operators =
      *new std::vector<const weir::OpDef*>(registry.List());
  weir::Bytes bytes(data, size);
  const weir::Graph graph = weir::MakeGraph(bytes, operators);
  const auto order = weir::Validate(graph, registry);
  if (order.ok() && order->size() != graph.nodes.size()) abort();
  const auto program = weir::Program::Compile(graph, device, registry);
  if (!program.ok()) return 0;
  // Two elements in every open axis.
  const std::vector<uint64_t> zeros(4096, 0);
  std::vector<weir::HostTensor> inputs;
  for (const weir::ValueDecl& decl : (*program)->inputs()) {
    weir::HostTensor& input = inputs.emplace_back();
    input.dtype = decl.dtype;
    if (decl.dtype == weir::DType::kString) return 0;
    if (decl.shape.has_value()) {
      for (weir::Dim dim : *decl.shape) {
        input.dims.push_back(dim.known() ? dim.value() : 2);
      }
    }
    const auto bytes_needed = weir::ByteSize(input.dtype, input.dims);
    if (!bytes_needed.ok() ||
        *bytes_needed > static_cast<int64_t>(zeros.size() * sizeof(uint64_t))) {
      return 0;
    }
    input.data = zeros.data();
  }
  const auto plan = (*program)->MakePlan(inputs);
  if (plan.ok() && (*program)->FindPlan(inputs) == nullptr) abort();
  return 0;
}
