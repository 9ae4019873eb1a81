#include "kernels/graph/passes/fuse.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/ops/fused_conv.h"
#include "kernels/ops/fused_matmul.h"

namespace weir {
namespace {

class Fuser {
 public:
  Fuser(LoweredGraph& graph, const OpRegistry& registry, DeviceKind device)
      : graph_(graph), registry_(registry), device_(device) {}

  void Run() {
    conv_ = registry_.FindInternal(kFusedConvDomain, kFusedConvName);
    matmul_ = registry_.FindInternal(kFusedMatMulDomain, kFusedMatMulName);
    FindReaders();
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

  // If the device takes it.
  void Replace(const std::vector<size_t>& joined, LoweredNode fused) {
    if (!registry_.Takes(device_, fused.info)) return;
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
  const DeviceKind device_;
  const OpDef* conv_ = nullptr;
  const OpDef* matmul_ = nullptr;
  std::vector<int> readers_;
  std::vector<bool> gone_;
};

}  // namespace

void FuseNodes(LoweredGraph& graph, const OpRegistry& registry,
               DeviceKind device) {
  Fuser(graph, registry, device).Run();
}

}  // namespace weir
