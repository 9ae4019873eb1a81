// Bytes become a graph of real operators, with names that collide, cycles, odd
// shapes and constants; the whole way to a plan must give a status or a plan,
// and a plan runs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/graph/program.h"
#include "kernels/ops/registry.h"
#include "tests/graph/plan_runner.h"

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

// What two bytes mean goes by the names of the operators (make_graph_seeds.py
// knows how), so that seeds keep their meaning when operators come.
using Operators = std::map<uint16_t, const OpDef*>;

uint16_t Place(const OpDef& def) {
  uint32_t hash = 2166136261;
  for (const std::string_view text : {def.domain, def.name}) {
    for (const char c : text) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
    }
  }
  return static_cast<uint16_t>(hash >> 16);
}

Operators InPlace(const OpRegistry& registry) {
  Operators operators;
  for (const OpDef* def : registry.List()) {
    // Two in one place: only one would be tried.
    if (!operators.emplace(Place(*def), def).second) abort();
  }
  return operators;
}

// Most of a graph makes sense, so that most graphs come far: a node's inputs
// are values that are there, of a type that it takes, its outputs have names of
// their own. A byte near 255 makes something odd instead.
class Maker {
 public:
  Maker(Bytes& bytes, const Operators& operators)
      : bytes_(bytes), operators_(operators) {}

  Graph Make() {
    graph_.symbols = {"N"};
    graph_.opsets[""] = Odd() ? bytes_.Next() % 28 : 17;
    for (int i = bytes_.Next() % 4 + 1; i > 0; --i) AddInput();
    for (int i = bytes_.Next() % 4; i > 0; --i) {
      const std::string name = Fresh();
      graph_.constants[name] = SmallConstant(bytes_);
      Know(name, graph_.constants[name]->tensor.dtype);
    }
    while (!bytes_.empty() && graph_.nodes.size() < 32) AddNode();
    return std::move(graph_);
  }

 private:
  struct Known {
    std::string name;
    DType dtype;
  };

  bool Odd() { return bytes_.Next() >= 250; }
  std::string Fresh() {
    return Odd() ? Name(bytes_) : "v" + std::to_string(names_++);
  }
  void Know(const std::string& name, DType dtype) {
    known_.push_back({name, dtype});
  }

  void AddInput() {
    ValueDecl& input = graph_.inputs.emplace_back();
    input.name = Fresh();
    input.dtype = Type(bytes_);
    Know(input.name, input.dtype);
    const bool odd = Odd();
    const uint8_t rank = bytes_.Next() % (odd ? 10 : 5);
    if (rank == 9) return;
    SymbolicDims dims;
    for (int d = 0; d < rank; ++d) {
      const int64_t extent = odd ? Extent(bytes_) : bytes_.Next() % 5;
      dims.push_back(extent == 0 ? Dim::Symbol(odd ? bytes_.Next() % 2 : 0)
                                 : Dim(extent));
    }
    input.shape = std::move(dims);
  }

  // A value of a type that is wanted, if there is one.
  Known Find(TypeSet types) {
    const size_t start = bytes_.Next() % known_.size();
    for (size_t i = 0; i < known_.size(); ++i) {
      const Known& known = known_[(start + i) % known_.size()];
      if (types.Has(known.dtype)) return known;
    }
    return known_[start];
  }

  void AddNode() {
    const unsigned high = bytes_.Next();
    auto at = operators_.lower_bound(
        static_cast<uint16_t>(high << 8 | bytes_.Next()));
    if (at == operators_.end()) at = operators_.begin();
    const OpDef& def = *at->second;
    GraphNode& node = graph_.nodes.emplace_back();
    node.domain = std::string(def.domain);
    node.op = std::string(def.name);
    DType first = DType::kFloat;
    for (const InputDef& input : def.inputs) {
      if (input.optional && bytes_.Next() % 2 == 0) break;
      for (int n = input.variadic ? bytes_.Next() % 3 + 1 : 1; n > 0; --n) {
        const Known value =
            Odd() ? Known{Name(bytes_), DType::kFloat} : Find(input.types);
        if (node.inputs.empty()) first = value.dtype;
        node.inputs.push_back(value.name);
      }
    }
    size_t outputs = 0;
    for (const OutputDef& output : def.outputs) {
      if (output.optional && bytes_.Next() % 2 == 0) break;
      ++outputs;
    }
    if (Odd()) outputs = bytes_.Next() % 4;
    for (size_t k = 0; k < outputs; ++k) node.outputs.push_back(Fresh());
    for (int k = bytes_.Next() % 3; k > 0; --k) {
      AddAttribute(bytes_, def, &node.attributes);
    }
    if (outputs == 0) return;
    for (const std::string& name : node.outputs) Know(name, first);
    graph_.outputs = {node.outputs[0]};
  }

  Bytes& bytes_;
  const Operators& operators_;
  Graph graph_;
  std::vector<Known> known_;
  int names_ = 0;
};

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& registry = *weir::MakeOpRegistry().release();
  static weir::Device& device =
      *weir::MakeCpuDevice({.cpu_threads = 1, .cache_dir = ""}).release();
  static const auto& operators = *new weir::Operators(weir::InPlace(registry));
  weir::Bytes bytes(data, size);
  const weir::Graph graph = weir::Maker(bytes, operators).Make();
  const auto order = weir::Validate(graph, registry);
  if (order.ok() && order->size() != graph.nodes.size()) abort();
  weir::ProgramOptions options;
  options.evaluation = {
      .output_bytes = 1 << 20, .scratch_bytes = 1 << 20, .operations = 1 << 24};
  const auto program = weir::Program::Compile(graph, device, registry, options);
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
  if (!plan.ok()) return 0;
  if ((*program)->FindPlan(inputs) == nullptr) abort();
  // What is told of it.
  const size_t named = (*plan)->Describe().empty() ? 0 : (*plan)->steps();
  if (named != (*plan)->steps()) abort();
  for (size_t i = 0; i < (*plan)->steps(); ++i) (void)(*plan)->Step(i);
  for (uint32_t node = 0; node <= graph.nodes.size(); ++node) {
    if ((*plan)->FaultAt(node, weir::FaultCode::kIndexOutOfRange).ok()) abort();
  }
  // Text in results is not where a runner of plans looks for it.
  for (const weir::Plan::Value& output : (*plan)->outputs()) {
    if (output.meta.dtype == weir::DType::kString) return 0;
  }
  const absl::Status ran =
      weir::testing::PlanRunner(device, **plan).Run(inputs);
  // Once more, for somebody who may leave at any step, and is asked before each
  // but the first.
  size_t steps = size % 8;
  weir::testing::PlanRunner left(device, **plan);
  left.set_go_on([&steps] {
    return steps-- > 0 ? absl::OkStatus() : absl::CancelledError("nobody");
  });
  const absl::Status ended = left.Run(inputs);
  if (!absl::IsCancelled(ended) && ended != ran) abort();
  if (ended.ok() && left.asked() + 1 < (*plan)->steps()) abort();
  return 0;
}
