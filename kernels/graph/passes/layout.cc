#include "kernels/graph/passes/layout.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "kernels/base/utf8.h"
#include "kernels/graph/host_evaluator.h"
#include "kernels/graph/node_inference.h"
#include "kernels/ops/fused_conv.h"
#include "kernels/ops/movement.h"

namespace weir {
namespace {

constexpr size_t kPictureRank = 4;
constexpr char kRelayout[] = "Relayout";
constexpr size_t kMaxToldBytes = 512;

class LayoutChooser {
 public:
  LayoutChooser(LoweredGraph& graph, const OpRegistry& registry,
                const DeviceInfo& device, const DeviceInfo& host)
      : graph_(graph), registry_(registry), device_(device), host_(host) {}

  void Run() {
    relayout_ = registry_.FindInternal(kFusedConvDomain, kRelayout);
    if (relayout_ == nullptr ||
        !registry_.HasKernel(device_, kFusedConvDomain, kRelayout)) {
      return;
    }
    if (!ShareKernels(device_, host_)) FindHostValues();
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

  // What a plan may compute on the host beside another device: shapes depend on
  // it, or it depends on constants alone. The host's kernels take the layouts
  // that suit the CPU, so these keep the one that all know.
  void FindHostValues() {
    const std::vector<bool> asked = AskedByHost(graph_);
    on_host_.assign(graph_.values.size(), false);
    for (size_t id = 0; id < on_host_.size(); ++id) {
      const LoweredValue& v = graph_.values[id];
      on_host_[id] = v.constant != nullptr || (v.input >= 0 && asked[id]);
    }
    for (const LoweredNode& node : graph_.nodes) {
      const bool known =
          node.def->shape_only ||
          (!node.def->random && absl::c_all_of(node.inputs, [&](int id) {
            return id == kNoValue || on_host_[static_cast<size_t>(id)];
          }));
      if (!known) continue;
      for (const int id : node.outputs) {
        on_host_[static_cast<size_t>(id)] = true;
      }
    }
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
        node.inputs[0] == kNoValue ||
        (!on_host_.empty() && on_host_[static_cast<size_t>(node.outputs[0])])) {
      return false;
    }
    if (IsElementwise(node)) return FollowsElementwise(node);
    if (!HasPictureShape(node.inputs[0]) ||
        !registry_.TakesChannelsLast(device_, node.info)) {
      return false;
    }
    if (!IsConv(node)) {
      return value(node.inputs[0]).layout == Layout::kChannelsLast;
    }
    // A kernel knows the layout by its pictures: its weights alone do not tell.
    return !IsSameInAnyLayout(node.inputs[0]) ||
           !IsSameInAnyLayout(node.outputs[0]);
  }

  // Some input has channels last, and all that are no single numbers have the
  // output's shape: then elements of the same position meet in any layout.
  bool FollowsElementwise(const LoweredNode& node) {
    const SymbolicShape& output = value(node.outputs[0]).shape;
    bool any = false;
    for (const int id : node.inputs) {
      if (id == kNoValue || IsNumber(id)) continue;
      if (!SurelyEqual(value(id).shape, output)) return false;
      any = any || value(id).layout == Layout::kChannelsLast;
    }
    return any;
  }

  // A constant in the other layout; null where it cannot be made now, also for
  // want of memory: then a node makes it in every run.
  static std::shared_ptr<const Constant> Moved(const Constant& from,
                                               Layout layout) {
    const HostTensor& x = from.tensor;
    if (x.data == nullptr || x.dtype == DType::kString) return nullptr;
    TensorMeta meta = MakeMeta(x.dtype, x.dims);
    meta.layout = layout;
    std::byte* data = nullptr;
    auto moved = MakeHostConstant(meta, &data);
    if (!moved.ok()) return nullptr;
    if (meta.elements > 0) {
      RelayoutCopy(x.dims,
                   layout == Layout::kChannelsLast ? Layout::kRowMajor
                                                   : Layout::kChannelsLast,
                   SizeOf(x.dtype))
          .Run(nullptr, x.data, data);
    }
    return *std::move(moved);
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
      node.label = Told(owner->label);
      node.info.name = Told(owner->info.name);
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

  // As much as errors show: one node may have a copy for each of its outputs.
  static std::string Told(const std::string& text) {
    return std::string(CutText(text, kMaxToldBytes));
  }

  LoweredGraph& graph_;
  const OpRegistry& registry_;
  const DeviceInfo& device_;
  const DeviceInfo& host_;
  const OpDef* relayout_ = nullptr;
  std::vector<bool> on_host_;  // by value, of before; empty where it has none
  // By value: the same in the other layout.
  absl::flat_hash_map<int, int> copies_;
};

}  // namespace

void ChooseLayouts(LoweredGraph& graph, const OpRegistry& registry,
                   const DeviceInfo& device, const DeviceInfo& host) {
  LayoutChooser(graph, registry, device, host).Run();
}

}  // namespace weir
