#include "kernels/graph/passes/fuse.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "kernels/ops/fused_conv.h"
#include "kernels/ops/fused_elementwise.h"
#include "kernels/ops/fused_matmul.h"

namespace weir {
namespace {

// Chains of elementwise nodes that are joined, longer ones first. No others: a
// caller's graph must not have a device compile kernels without end.
const std::vector<std::string_view> kChains[] = {
    {"Div", "Erf", "Add", "Mul", "Mul"},
    {"Mul", "Erf", "Add", "Mul", "Mul"},
    {"Div", "Add"},
    {"Mul", "Add"},
};

class Fuser {
 public:
  Fuser(LoweredGraph& graph, const OpRegistry& registry,
        const DeviceInfo& device)
      : graph_(graph), registry_(registry), device_(device) {}

  void Run() {
    conv_ = registry_.FindInternal(kFusedConvDomain, kFusedConvName);
    matmul_ = registry_.FindInternal(kFusedMatMulDomain, kFusedMatMulName);
    elementwise_ =
        registry_.FindInternal(kFusedElementwiseDomain, kFusedElementwiseName);
    FindReaders();
    asked_ = AskedByHost(graph_);
    gone_.assign(graph_.nodes.size(), false);
    for (size_t p = 0; p < graph_.nodes.size(); ++p) {
      const LoweredNode& node = graph_.nodes[p];
      if (gone_[p] || !node.info.domain.empty() ||
          value(node.outputs[0]).constant != nullptr) {
        continue;
      }
      if (node.info.op == "Conv" && conv_ != nullptr) FuseConv(p);
      if (node.info.op == "MatMul" && matmul_ != nullptr) FuseMatMul(p);
    }
    if (elementwise_ != nullptr &&
        registry_.HasKernel(device_, kFusedElementwiseDomain,
                            kFusedElementwiseName)) {
      FuseChains();
    }
    Compact();
  }

 private:
  static constexpr size_t kPictureRank = 4;
  static constexpr int kSeveral = -2;
  static constexpr int kNobody = -1;

  LoweredValue& value(int id) { return graph_.values[static_cast<size_t>(id)]; }

  // By value: the one node that reads it, once.
  void FindReaders() {
    readers_.assign(graph_.values.size(), kNobody);
    const auto read = [&](int id, int by) {
      if (id == kNoValue) return;
      int& reader = readers_[static_cast<size_t>(id)];
      reader = reader == kNobody ? by : kSeveral;
    };
    for (size_t p = 0; p < graph_.nodes.size(); ++p) {
      for (const int id : graph_.nodes[p].inputs) read(id, static_cast<int>(p));
    }
    for (const int id : graph_.outputs) read(id, kSeveral);
  }

  // The node that alone reads the value, if it is `op` of ONNX.
  std::optional<size_t> ReaderOf(int id, std::string_view op) const {
    const int reader = readers_[static_cast<size_t>(id)];
    if (reader < 0 || gone_[static_cast<size_t>(reader)]) return std::nullopt;
    const LoweredNode& node = graph_.nodes[static_cast<size_t>(reader)];
    if (!node.info.domain.empty() || node.info.op != op) return std::nullopt;
    return static_cast<size_t>(reader);
  }

  // The constant number at input `i`, `missing` without one; empty for what is
  // computed.
  std::optional<float> NumberAt(const LoweredNode& node, size_t i,
                                float missing) {
    if (!node.info.HasInput(i)) return missing;
    const auto& constant = value(node.inputs[i]).constant;
    if (constant == nullptr || constant->tensor.data == nullptr ||
        NumElements(constant->tensor.dims).value_or(0) != 1) {
      return std::nullopt;
    }
    switch (constant->tensor.dtype) {
      case DType::kFloat:
        return *constant->tensor.as<float>();
      case DType::kFloat16:
        return static_cast<float>(*constant->tensor.as<Float16>());
      case DType::kBfloat16:
        return static_cast<float>(*constant->tensor.as<Bfloat16>());
      default:
        return std::nullopt;
    }
  }

  void FuseConv(size_t conv) {
    const LoweredNode& from = graph_.nodes[conv];
    const SymbolicShape& shape = value(from.outputs[0]).shape;
    if (!shape.has_value() || shape->size() != kPictureRank) return;
    LoweredNode fused = from;
    fused.def = conv_;
    fused.info.domain = kFusedConvDomain;
    fused.info.op = kFusedConvName;
    fused.inputs.resize(kFusedConvInputs, kNoValue);
    fused.info.input_types.resize(kFusedConvInputs, DType::kInvalid);
    std::vector<size_t> joined = {conv};
    const auto join = [&](size_t position) {
      const LoweredNode& node = graph_.nodes[position];
      joined.push_back(position);
      fused.joined.push_back({node.index, node.info.name});
      fused.outputs = node.outputs;
    };
    if (const auto add = ReaderOf(fused.outputs[0], "Add")) {
      const LoweredNode& node = graph_.nodes[*add];
      const int other = node.inputs[node.inputs[0] == fused.outputs[0] ? 1 : 0];
      if (SurelyEqual(value(other).shape, value(fused.outputs[0]).shape)) {
        fused.inputs[kFusedConvResidual] = other;
        fused.info.input_types[kFusedConvResidual] = value(other).dtype;
        join(*add);
      }
    }
    if (const auto relu = ReaderOf(fused.outputs[0], "Relu")) {
      fused.info.attributes.Set(std::string(kFusedConvActivation),
                                std::string("Relu"));
      join(*relu);
    } else if (const auto clip = ReaderOf(fused.outputs[0], "Clip")) {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const LoweredNode& node = graph_.nodes[*clip];
      const auto low = NumberAt(node, 1, -kInfinity);
      const auto high = NumberAt(node, 2, kInfinity);
      if (node.inputs[0] == fused.outputs[0] && low.has_value() &&
          high.has_value() && *low == *low && *high == *high) {
        fused.info.attributes.Set(std::string(kFusedConvActivation),
                                  std::string("Clip"));
        fused.info.attributes.Set(std::string(kFusedConvLow), *low);
        fused.info.attributes.Set(std::string(kFusedConvHigh), *high);
        join(*clip);
      }
    }
    if (joined.size() == 1) return;
    Replace(joined, std::move(fused));
  }

  void FuseMatMul(size_t matmul) {
    const LoweredNode& from = graph_.nodes[matmul];
    const auto add = ReaderOf(from.outputs[0], "Add");
    if (!add.has_value()) return;
    const LoweredNode& last = graph_.nodes[*add];
    const int row = last.inputs[last.inputs[0] == from.outputs[0] ? 1 : 0];
    const SymbolicShape& weights = value(from.inputs[1]).shape;
    const SymbolicShape& added = value(row).shape;
    if (!weights.has_value() || weights->size() != 2 || !added.has_value() ||
        added->size() != 1 || !(*added)[0].SurelyEquals((*weights)[1])) {
      return;
    }
    LoweredNode fused = from;
    fused.def = matmul_;
    fused.info.domain = kFusedMatMulDomain;
    fused.info.op = kFusedMatMulName;
    fused.inputs.push_back(row);
    fused.info.input_types.push_back(value(row).dtype);
    fused.joined.push_back({last.index, last.info.name});
    fused.outputs = last.outputs;
    Replace({matmul, *add}, std::move(fused));
  }

  // After the others, which make more of an Add.
  void FuseChains() {
    FindShapes();
    for (size_t p = 0; p < graph_.nodes.size(); ++p) {
      for (const auto& ops : kChains) {
        const std::vector<size_t> chain = ChainAt(p, ops);
        if (chain.empty()) continue;
        FuseChain(chain);
        break;
      }
    }
  }

  // The nodes from `first` on, each of which alone reads the one before it, if
  // they are `ops` and make elements of one type, in one shape.
  std::vector<size_t> ChainAt(size_t first,
                              const std::vector<std::string_view>& ops) {
    const LoweredNode& node = graph_.nodes[first];
    if (gone_[first] || node.info.op != ops.front() || !MayJoin(node)) {
      return {};
    }
    std::vector<size_t> chain = {first};
    while (chain.size() < ops.size()) {
      const int before = graph_.nodes[chain.back()].outputs[0];
      const auto next = ReaderOf(before, ops[chain.size()]);
      if (!next.has_value() || !MayJoin(graph_.nodes[*next])) return {};
      const int made = graph_.nodes[*next].outputs[0];
      if (value(made).dtype != value(before).dtype ||
          !HaveOneShape(made, before)) {
        return {};
      }
      chain.push_back(*next);
    }
    return chain;
  }

  // Finds what has the shape of another value, though it may not be known.
  void FindShapes() {
    shape_of_.resize(graph_.values.size());
    for (size_t id = 0; id < shape_of_.size(); ++id) {
      shape_of_[id] = static_cast<int>(id);
    }
    for (size_t p = 0; p < graph_.nodes.size(); ++p) {
      const LoweredNode& node = graph_.nodes[p];
      const bool broadcasts = node.info.domain.empty() &&
                              absl::c_any_of(kChains, [&](const auto& ops) {
                                return absl::c_linear_search(ops, node.info.op);
                              });
      if (gone_[p] || !broadcasts) continue;
      int shape = kNobody;
      for (const int id : node.inputs) {
        const int of = shape_of_[static_cast<size_t>(id)];
        if (shape == of) continue;
        if (shape == kNobody || IsNumberBeside(shape, of)) {
          shape = of;
        } else if (!IsNumberBeside(of, shape)) {
          shape = kSeveral;
          break;
        }
      }
      if (shape >= 0) shape_of_[static_cast<size_t>(node.outputs[0])] = shape;
    }
  }

  // Whether the constant does not change the shape of what meets it.
  bool IsNumberBeside(int constant, int other) {
    const LoweredValue& number = value(constant);
    const SymbolicShape& shape = value(other).shape;
    if (number.constant == nullptr) return false;
    const Dims& dims = number.constant->tensor.dims;
    return dims.size() <= (shape.has_value() ? shape->size() : 0) &&
           absl::c_all_of(dims, [](int64_t size) { return size == 1; });
  }

  bool HaveOneShape(int a, int b) {
    return shape_of_[static_cast<size_t>(a)] ==
               shape_of_[static_cast<size_t>(b)] ||
           SurelyEqual(value(a).shape, value(b).shape);
  }

  bool MayJoin(const LoweredNode& node) {
    const LoweredValue& made = value(node.outputs[0]);
    return node.info.domain.empty() && node.def->expression != nullptr &&
           made.constant == nullptr && absl::c_all_of(node.inputs, [&](int id) {
             return id != kNoValue && value(id).dtype == made.dtype;
           });
  }

  void FuseChain(const std::vector<size_t>& chain) {
    LoweredNode fused = graph_.nodes[chain.front()];
    fused.def = elementwise_;
    fused.info.domain = kFusedElementwiseDomain;
    fused.info.op = kFusedElementwiseName;
    fused.inputs.clear();
    std::vector<ChainLink> links;
    int64_t operands = 0;
    int before = kNoValue;
    for (const size_t position : chain) {
      const LoweredNode& node = graph_.nodes[position];
      const auto expression = node.def->expression(node.info);
      if (!expression.ok() || expression->moves) return;
      ChainLink link = {.code = expression->code, .inputs = {}};
      for (const int id : node.inputs) {
        const auto found = absl::c_find(fused.inputs, id);
        const auto at = static_cast<int>(found - fused.inputs.begin());
        link.inputs.push_back(id == before ? ChainLink::kBefore : at);
        if (id != before && found == fused.inputs.end()) {
          fused.inputs.push_back(id);
        }
      }
      operands += static_cast<int64_t>(node.inputs.size());
      links.push_back(std::move(link));
      before = node.outputs[0];
      if (position != chain.front()) {
        fused.joined.push_back({node.index, node.info.name});
      }
    }
    fused.outputs = {before};
    fused.info.input_types.assign(fused.inputs.size(), value(before).dtype);
    fused.info.attributes = {};
    fused.info.attributes.Set(std::string(kFusedElementwiseCode),
                              ChainCode(links));
    fused.info.attributes.Set(std::string(kFusedElementwiseOperands), operands);
    Replace(chain, std::move(fused));
  }

  // If the device takes it. A host that has to tell shapes knows the caller's
  // operators alone.
  void Replace(const std::vector<size_t>& joined, LoweredNode fused) {
    if (asked_[static_cast<size_t>(fused.outputs[0])] ||
        !registry_.Takes(device_, fused.info)) {
      return;
    }
    // Where the last one stood, everything that any of them reads is there.
    const size_t place = joined.back();
    for (const size_t position : joined) gone_[position] = true;
    graph_.nodes[place] = std::move(fused);
    gone_[place] = false;
  }

  void Compact() {
    size_t kept = 0;
    for (size_t p = 0; p < graph_.nodes.size(); ++p) {
      if (gone_[p]) continue;
      if (kept != p) graph_.nodes[kept] = std::move(graph_.nodes[p]);
      for (const int id : graph_.nodes[kept].outputs) {
        value(id).producer = static_cast<int>(kept);
      }
      ++kept;
    }
    graph_.nodes.resize(kept);
  }

  LoweredGraph& graph_;
  const OpRegistry& registry_;
  const DeviceInfo& device_;
  const OpDef* conv_ = nullptr;
  const OpDef* matmul_ = nullptr;
  const OpDef* elementwise_ = nullptr;
  std::vector<int> readers_;
  std::vector<bool> gone_;
  std::vector<bool> asked_;    // by value: the host may have to tell it
  std::vector<int> shape_of_;  // by value, for chains: a value of its shape
};

}  // namespace

void FuseNodes(LoweredGraph& graph, const OpRegistry& registry,
               const DeviceInfo& device) {
  Fuser(graph, registry, device).Run();
}

}  // namespace weir
