#include "kernels/graph/passes/layout.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "kernels/graph/host_evaluator.h"
#include "kernels/graph/node_inference.h"
#include "kernels/ops/fused_conv.h"
#include "kernels/ops/strided_copy.h"

namespace weir {
namespace {

constexpr size_t kPictureRank = 4;
constexpr char kRelayout[] = "Relayout";

class LayoutChooser {
 public:
  LayoutChooser(LoweredGraph& graph, const OpRegistry& registry,
                DeviceKind device)
      : graph_(graph), registry_(registry), device_(device) {}

  void Run() {
    relayout_ = registry_.FindInternal(kFusedConvDomain, kRelayout);
    if (relayout_ == nullptr ||
        !registry_.HasKernel(device_, kFusedConvDomain, kRelayout)) {
      return;
    }
    std::vector<LoweredNode> before = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (LoweredNode& node : before) {
      Place(node);
      Append(std::move(node));
    }
    for (int& id : graph_.outputs) id = In(Layout::kRowMajor, id, nullptr);
  }

 private:
  LoweredValue& value(int id) { return graph_.values[static_cast<size_t>(id)]; }

  void Append(LoweredNode node) {
    for (const int id : node.outputs) {
      value(id).producer = static_cast<int>(graph_.nodes.size());
    }
    graph_.nodes.push_back(std::move(node));
  }

  // Gives the node's outputs a layout, and its inputs the one it takes.
  void Place(LoweredNode& node) {
    const auto read_all = [&](Layout layout) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == kNoValue) continue;
        const bool picture = IsPicture(node, i);
        node.inputs[i] =
            In(picture ? layout : Layout::kRowMajor, node.inputs[i], &node);
      }
    };
    if (!WillBeChannelsLast(node)) return read_all(Layout::kRowMajor);
    read_all(Layout::kChannelsLast);
    if (!IsSameInAnyLayout(node.outputs[0])) {
      value(node.outputs[0]).layout = Layout::kChannelsLast;
    }
  }

  // With one pixel both layouts are the same bytes.
  bool IsSameInAnyLayout(int id) {
    if (IsNumber(id)) return true;
    return HasPictureShape(id) &&
           Product(absl::MakeConstSpan(*value(id).shape).subspan(2))
               .SurelyEquals(Dim(1));
  }

  bool HasPictureShape(int id) {
    const SymbolicShape& shape = value(id).shape;
    return shape.has_value() && shape->size() == kPictureRank;
  }

  static bool IsConv(const LoweredNode& node) {
    return (node.info.domain.empty() && node.info.op == "Conv") ||
           IsFusedConv(node);
  }
  static bool IsFusedConv(const LoweredNode& node) {
    return node.info.domain == kFusedConvDomain &&
           node.info.op == kFusedConvName;
  }
  static bool IsElementwise(const LoweredNode& node) {
    return node.def->expression != nullptr;
  }

  // Whether input `i` is read in the node's layout: what has pixels.
  bool IsPicture(const LoweredNode& node, size_t i) {
    if (IsElementwise(node)) return !IsNumber(node.inputs[i]);
    if (i == 1) return registry_.TakesWeightsChannelsLast(device_, node.info);
    return i == 0 || (IsFusedConv(node) && i == kFusedConvResidual);
  }

  bool IsNumber(int id) {
    const SymbolicShape& shape = value(id).shape;
    return shape.has_value() &&
           Product(absl::MakeConstSpan(*shape)).SurelyEquals(Dim(1));
  }

  bool WillBeChannelsLast(const LoweredNode& node) {
    if (node.outputs.size() != 1 || !HasPictureShape(node.outputs[0]) ||
        value(node.outputs[0]).constant != nullptr || node.inputs.empty() ||
        node.inputs[0] == kNoValue) {
      return false;
    }
    if (IsElementwise(node)) return FollowsElementwise(node);
    if (!HasPictureShape(node.inputs[0]) ||
        !registry_.TakesChannelsLast(device_, node.info)) {
      return false;
    }
    return IsConv(node) ||
           value(node.inputs[0]).layout == Layout::kChannelsLast;
  }

  // Some input has channels last, and all that are no single numbers have the
  // output's shape: then elements of the same position meet in any layout.
  bool FollowsElementwise(const LoweredNode& node) {
    const SymbolicDims& output = *value(node.outputs[0]).shape;
    bool any = false;
    for (const int id : node.inputs) {
      if (id == kNoValue || IsNumber(id)) continue;
      const SymbolicShape& shape = value(id).shape;
      if (!shape.has_value() || shape->size() != output.size()) return false;
      for (size_t i = 0; i < output.size(); ++i) {
        if (!(*shape)[i].SurelyEquals(output[i])) return false;
      }
      any = any || value(id).layout == Layout::kChannelsLast;
    }
    return any;
  }

  // A constant in the other layout; null where it cannot be made now.
  static std::shared_ptr<const Constant> Moved(const Constant& from,
                                               Layout layout) {
    const HostTensor& x = from.tensor;
    if (x.data == nullptr || x.dtype == DType::kString) return nullptr;
    TensorMeta meta = MakeMeta(x.dtype, x.dims);
    meta.layout = layout;
    std::byte* data = nullptr;
    auto moved = MakeHostConstant(meta, &data);
    if (meta.elements > 0) {
      RelayoutCopy(x.dims[0], x.dims[1], x.dims[2] * x.dims[3],
                   layout == Layout::kChannelsLast, SizeOf(x.dtype))
          .Run(nullptr, x.data, data);
    }
    return moved;
  }

  // The value in `layout`: itself, or a copy that a new node makes, now if it
  // is a constant. `reader` lends its call site; null: the graph's output.
  int In(Layout layout, int id, const LoweredNode* reader) {
    if (value(id).layout == layout || IsSameInAnyLayout(id)) return id;
    const auto found = copies_.find(id);
    if (found != copies_.end()) return found->second;
    const int copy = static_cast<int>(graph_.values.size());
    {
      LoweredValue made = value(id);
      made.layout = layout;
      if (made.constant != nullptr) {
        made.constant = Moved(*made.constant, layout);
      }
      made.input = -1;
      graph_.values.push_back(std::move(made));
    }
    copies_[id] = copy;
    copies_[copy] = id;
    if (value(copy).constant != nullptr) {
      value(copy).producer = -1;
      return copy;
    }
    LoweredNode node;
    const int producer = value(id).producer;
    // Told as a part of the node whose value it moves, or that wants it moved.
    const LoweredNode* owner =
        producer >= 0 ? &graph_.nodes[static_cast<size_t>(producer)] : reader;
    if (owner != nullptr) {
      node.index = owner->index;
      node.label = owner->label;
      node.call_site = owner->call_site;
      node.info.name = owner->info.name;
    }
    node.def = relayout_;
    node.info.domain = kFusedConvDomain;
    node.info.op = kRelayout;
    node.info.input_types = {value(id).dtype};
    node.inputs = {id};
    node.outputs = {copy};
    node.inserted = true;
    Append(std::move(node));
    return copy;
  }

  LoweredGraph& graph_;
  const OpRegistry& registry_;
  const DeviceKind device_;
  const OpDef* relayout_ = nullptr;
  // By value: the same in the other layout.
  absl::flat_hash_map<int, int> copies_;
};

}  // namespace

void ChooseLayouts(LoweredGraph& graph, const OpRegistry& registry,
                   DeviceKind device) {
  LayoutChooser(graph, registry, device).Run();
}

}  // namespace weir
