#include "kernels/ops/op.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernels/base/saturating.h"

namespace weir {
namespace {

template <typename T>
T Get(const Attributes& attributes, std::string_view name, T fallback) {
  const AttributeValue* value = attributes.Find(name);
  if (value == nullptr) return fallback;
  const T* typed = std::get_if<T>(value);
  return typed == nullptr ? fallback : *typed;
}

class FunctionPlan final : public KernelPlan {
 public:
  explicit FunctionPlan(PlannedRun planned) : planned_(std::move(planned)) {}
  size_t scratch_bytes() const override { return planned_.scratch_bytes; }
  size_t held_bytes() const override { return planned_.held_bytes; }
  size_t launches() const override { return planned_.launches; }
  bool computes_on_host() const override { return planned_.computes_on_host; }
  absl::Status Run(const RunArgs& args) const override {
    return planned_.run(args);
  }

 private:
  const PlannedRun planned_;
};

class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(PlanFunction plan) : plan_(std::move(plan)) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    auto planned = plan_(args);
    if (!planned.ok()) return planned.status();
    return MakePlan(*std::move(planned));
  }

 private:
  const PlanFunction plan_;
};

}  // namespace

void Attributes::Set(std::string name, AttributeValue value) {
  values_.emplace_back(std::move(name), std::move(value));
}

const AttributeValue* Attributes::Find(std::string_view name) const {
  for (const auto& [key, value] : values_) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t Attributes::Int(std::string_view name, int64_t fallback) const {
  return Get<int64_t>(*this, name, fallback);
}

float Attributes::Float(std::string_view name, float fallback) const {
  return Get<float>(*this, name, fallback);
}

std::string Attributes::String(std::string_view name,
                               std::string_view fallback) const {
  return Get<std::string>(*this, name, std::string(fallback));
}

std::vector<int64_t> Attributes::Ints(std::string_view name) const {
  return Get<std::vector<int64_t>>(*this, name, {});
}

std::vector<float> Attributes::Floats(std::string_view name) const {
  return Get<std::vector<float>>(*this, name, {});
}

std::vector<std::string> Attributes::Strings(std::string_view name) const {
  return Get<std::vector<std::string>>(*this, name, {});
}

std::shared_ptr<const Constant> Attributes::Tensor(
    std::string_view name) const {
  return Get<std::shared_ptr<const Constant>>(*this, name, nullptr);
}

NodeCost OutputCost(const NodeInfo&, DeviceKind, const PlanArgs& args) {
  NodeCost cost;
  for (const TensorMeta& output : args.outputs) {
    cost.operations = SaturatingAdd(cost.operations, output.elements);
  }
  return cost;
}

NodeCost LinearCost(const NodeInfo& node, DeviceKind device,
                    const PlanArgs& args) {
  NodeCost cost = OutputCost(node, device, args);
  for (const TensorMeta& input : args.inputs) {
    cost.operations = SaturatingAdd(cost.operations, input.elements);
  }
  return cost;
}

void AddOnACpu(DeviceKind device, const PlanArgs& args, int64_t count,
               int64_t operations, NodeCost& cost) {
  const bool makes_any =
      std::any_of(args.outputs.begin(), args.outputs.end(),
                  [](const TensorMeta& output) { return output.elements > 0; });
  if (device != DeviceKind::kCpu || !makes_any) return;
  cost.operations =
      SaturatingAdd(cost.operations, SaturatingMul(count, operations));
}

void AddStridedOnACpu(DeviceKind device, const PlanArgs& args,
                      const TensorMeta& from, int64_t elements, int64_t stride,
                      NodeCost& cost) {
  constexpr int64_t kLineBytes = 64;
  constexpr int64_t kStridedOperations = 20;
  const int64_t apart =
      SaturatingMul(std::abs(stride), static_cast<int64_t>(SizeOf(from.dtype)));
  if (apart < kLineBytes || from.bytes <= kCachedBytes) return;
  AddOnACpu(device, args, elements, kStridedOperations, cost);
}

int64_t RowsOf(const TensorMeta& meta) {
  for (size_t d = meta.dims.size(); d-- > 0;) {
    if (meta.dims[d] > 1) return meta.elements / meta.dims[d];
  }
  return meta.elements;
}

NodeCost RowwiseCost(const NodeInfo& node, DeviceKind device,
                     const PlanArgs& args) {
  return RowsCost(node, device, args, RowsOf(args.outputs[0]));
}

NodeCost RowsCost(const NodeInfo& node, DeviceKind device, const PlanArgs& args,
                  int64_t rows) {
  // Of a row, to find out where it comes from.
  constexpr int64_t kAxisOperations = 6;
  NodeCost cost = OutputCost(node, device, args);
  const auto rank = static_cast<int64_t>(args.outputs[0].dims.size());
  AddOnACpu(device, args, rows, kAxisOperations * rank, cost);
  return cost;
}

NodeCost ElementwiseCost(const NodeInfo& node, DeviceKind device,
                         const PlanArgs& args) {
  NodeCost cost = OutputCost(node, device, args);
  cost.operations = SaturatingMul(
      cost.operations,
      std::max<int64_t>(1, static_cast<int64_t>(args.inputs.size())));
  const int64_t elements = args.outputs[0].elements;
  if (std::any_of(args.inputs.begin(), args.inputs.end(),
                  [elements](const TensorMeta& input) {
                    return input.elements > 1 && input.elements != elements;
                  })) {
    // Where each operand's row begins, and a call for each if they are many.
    AddOnACpu(device, args, RowsOf(args.outputs[0]),
              kRowOperations / 2 * static_cast<int64_t>(args.inputs.size()),
              cost);
  }
  return cost;
}

std::unique_ptr<const KernelPlan> MakePlan(PlannedRun planned) {
  return std::make_unique<const FunctionPlan>(std::move(planned));
}

std::unique_ptr<const Kernel> MakeKernel(PlanFunction plan) {
  return std::make_unique<const FunctionKernel>(std::move(plan));
}

}  // namespace weir
