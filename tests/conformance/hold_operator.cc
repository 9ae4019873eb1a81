#include "tests/conformance/hold_operator.h"

#include <utility>
#include <vector>

#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "tests/base/event.h"
#include "tests/conformance/gate.h"
#include "tests/graph/copy_operator.h"

namespace weir {

struct HoldOperator::State {
  std::shared_ptr<DeviceGate> AddGate(Device& device) {
    std::shared_ptr<DeviceGate> gate = MakeGate(device);
    MutexLock lock(&mu);
    if (open) gate->Open();
    gates.push_back(gate);
    return gate;
  }

  const std::shared_ptr<Event> held = std::make_shared<Event>();
  Mutex mu;
  bool open WEIR_GUARDED_BY(mu) = false;
  std::vector<std::weak_ptr<DeviceGate>> gates WEIR_GUARDED_BY(mu);
};

namespace {

class HoldPlan final : public KernelPlan {
 public:
  HoldPlan(std::shared_ptr<DeviceGate> gate, std::shared_ptr<Event> held,
           size_t bytes)
      : gate_(std::move(gate)), held_(std::move(held)), bytes_(bytes) {}
  absl::Status Run(const RunArgs& run) const override {
    held_->Set();
    WEIR_RETURN_IF_ERROR(gate_->Hold(run.stream));
    return run.stream.CopyOnDevice(run.outputs[0], run.inputs[0], bytes_);
  }

 private:
  const std::shared_ptr<DeviceGate> gate_;
  const std::shared_ptr<Event> held_;
  const size_t bytes_;
};

class HoldKernel final : public Kernel {
 public:
  HoldKernel(std::shared_ptr<DeviceGate> gate, std::shared_ptr<Event> held)
      : gate_(std::move(gate)), held_(std::move(held)) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return std::make_unique<const HoldPlan>(gate_, held_,
                                            args.outputs[0].bytes);
  }

 private:
  const std::shared_ptr<DeviceGate> gate_;
  const std::shared_ptr<Event> held_;
};

OpDef HoldDef() {
  OpDef def = testing::CopyDef("Hold");
  def.attributes = {{"number", AttributeType::kInt, false,
                     "Tells programs apart that are alike."}};
  // Too much for whoever submits it.
  def.cost = [](const NodeInfo&, Pace, const PlanArgs&) {
    return NodeCost{.operations = 1'000'000'000};
  };
  return def;
}

}  // namespace

HoldOperator::HoldOperator() : state_(std::make_shared<State>()) {}
HoldOperator::~HoldOperator() = default;

absl::Status HoldOperator::Register(OpRegistry& registry) {
  if (registry.Find("weir", "Hold") != nullptr) return absl::OkStatus();
  const auto make = [state = state_](const NodeInfo&, Device& device) {
    return std::make_unique<const HoldKernel>(state->AddGate(device),
                                              state->held);
  };
  WEIR_RETURN_IF_ERROR(registry.Register(HoldDef(), make));
  return registry.RegisterKernel(DeviceKind::kCuda, "weir", "Hold", make);
}

void HoldOperator::WaitUntilHeld() { state_->held->Wait(); }

void HoldOperator::Open() {
  std::vector<std::weak_ptr<DeviceGate>> gates;
  {
    MutexLock lock(&state_->mu);
    state_->open = true;
    gates.swap(state_->gates);
  }
  for (const std::weak_ptr<DeviceGate>& gate : gates) {
    if (const std::shared_ptr<DeviceGate> held = gate.lock()) held->Open();
  }
}

}  // namespace weir
