#include "kernels/ops/output_types.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weir {
namespace {

// A node of which types alone are known.
class Probe final : public InferContext {
 public:
  explicit Probe(NodeInfo node)
      : node_(std::move(node)),
        outputs_(static_cast<size_t>(node_.num_outputs), DType::kInvalid) {}

  const NodeInfo& node() const override { return node_; }
  const SymbolicShape& input_shape(size_t) const override { return unknown_; }
  std::optional<absl::Span<const int64_t>> HostInts(size_t) const override {
    return std::nullopt;
  }
  void SetOutput(size_t i, DType dtype, SymbolicShape) override {
    if (i < outputs_.size()) outputs_[i] = dtype;
  }

  const std::vector<DType>& outputs() const { return outputs_; }

 private:
  const NodeInfo node_;
  const SymbolicShape unknown_;
  std::vector<DType> outputs_;
};

// What inference made of a node's types.
struct Run {
  std::vector<DType> inputs;
  std::vector<DType> outputs;
};

std::optional<Run> Infer(const OpDef& def, NodeInfo node) {
  Run run = {node.input_types, {}};
  Probe probe(std::move(node));
  if (!def.infer(probe).ok()) return std::nullopt;
  run.outputs = probe.outputs();
  return run;
}

std::vector<DType> All(const TypeSet& set) {
  std::vector<DType> types;
  for (int number = 1; number < 32; ++number) {
    const std::optional<DType> dtype = DTypeFromOnnx(number);
    if (dtype.has_value() && set.Has(*dtype)) types.push_back(*dtype);
  }
  return types;
}

// Whether inputs i and k always have the same type.
bool SameGroup(const OpDef& def, size_t i, size_t k) {
  return i == k || (def.inputs[i].group >= 0 &&
                    def.inputs[i].group == def.inputs[k].group);
}

// Each input of the first type that it may have.
NodeInfo NodeOf(const OpDef& def, int opset, bool with_optional) {
  NodeInfo node;
  node.domain = std::string(def.domain);
  node.op = std::string(def.name);
  node.opset = opset;
  node.num_outputs = static_cast<int>(def.outputs.size());
  for (const InputDef& input : def.inputs) {
    const std::vector<DType> types = All(input.types);
    const bool given = !types.empty() && (with_optional || !input.optional);
    node.input_types.push_back(given ? types.front() : DType::kInvalid);
  }
  return node;
}

// One that inference takes, the plainest: without what may be left out, if it
// may, and of the newest opset.
NodeInfo PlainNode(const OpDef& def) {
  for (const bool with_optional : {false, true}) {
    for (size_t i = def.meanings.size(); i-- > 0;) {
      NodeInfo node = NodeOf(def, def.meanings[i], with_optional);
      if (Infer(def, node).has_value()) return node;
    }
  }
  return NodeOf(def, def.meanings.back(), /*with_optional=*/false);
}

// With every type of every input, one input (and its group) at a time.
std::vector<Run> RunAll(const OpDef& def, const NodeInfo& plain) {
  std::vector<Run> runs;
  const auto add = [&](const NodeInfo& node) {
    if (auto run = Infer(def, node)) runs.push_back(*std::move(run));
  };
  add(plain);
  for (size_t i = 0; i < def.inputs.size(); ++i) {
    if (!plain.HasInput(i)) continue;
    for (const DType type : All(def.inputs[i].types)) {
      NodeInfo node = plain;
      for (size_t k = 0; k < def.inputs.size(); ++k) {
        if (plain.HasInput(k) && SameGroup(def, i, k)) {
          node.input_types[k] = type;
        }
      }
      add(node);
    }
  }
  return runs;
}

// The input whose type output `o` has in all runs. One that has a single type
// tells nothing.
int LikeInput(const OpDef& def, const std::vector<Run>& runs, size_t o) {
  for (size_t i = 0; i < def.inputs.size(); ++i) {
    bool same = !runs.empty() && All(def.inputs[i].types).size() > 1;
    for (const Run& run : runs) {
      same = same && run.inputs[i] == run.outputs[o];
    }
    if (same) return static_cast<int>(i);
  }
  return -1;
}

// Values of an attribute that would say types, if it says any.
std::vector<AttributeValue> SayingTypes(const AttributeDef& attribute) {
  static constexpr int64_t kZero = 0;  // of any of them
  std::vector<AttributeValue> values;
  for (const DType type : All(kFixedTypes)) {
    if (attribute.type == AttributeType::kInt) {
      values.emplace_back(static_cast<int64_t>(type));
    } else if (attribute.type == AttributeType::kTensor) {
      auto constant = std::make_shared<Constant>();
      constant->tensor.dtype = type;
      constant->tensor.dims = {1};
      constant->tensor.data = &kZero;
      values.emplace_back(std::shared_ptr<const Constant>(std::move(constant)));
    }
  }
  return values;
}

// The attribute that says the type of output `o`, or none.
std::string_view SayingAttribute(const OpDef& def, const NodeInfo& plain,
                                 size_t o) {
  for (const AttributeDef& attribute : def.attributes) {
    std::vector<DType> said;
    for (const AttributeValue& value : SayingTypes(attribute)) {
      NodeInfo node = plain;
      node.attributes.Set(std::string(attribute.name), value);
      if (auto run = Infer(def, std::move(node))) {
        said.push_back(run->outputs[o]);
      }
    }
    if (std::any_of(said.begin(), said.end(),
                    [&](DType type) { return type != said.front(); })) {
      return attribute.name;
    }
  }
  return {};
}

}  // namespace

std::vector<OutputTypes> OutputTypesOf(const OpDef& def) {
  std::vector<OutputTypes> all(def.outputs.size());
  if (def.infer == nullptr) return all;
  const NodeInfo plain = PlainNode(def);
  const std::vector<Run> runs = RunAll(def, plain);
  for (size_t o = 0; o < all.size(); ++o) {
    all[o].attribute = SayingAttribute(def, plain, o);
    all[o].like_input = LikeInput(def, runs, o);
    if (all[o].like_input >= 0) continue;
    for (const Run& run : runs) {
      if (run.outputs[o] != DType::kInvalid) {
        all[o].types.push_back(run.outputs[o]);
      }
    }
    std::sort(all[o].types.begin(), all[o].types.end());
    all[o].types.erase(std::unique(all[o].types.begin(), all[o].types.end()),
                       all[o].types.end());
  }
  return all;
}

}  // namespace weir
