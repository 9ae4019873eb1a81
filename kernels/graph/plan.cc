#include "kernels/graph/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/atomic.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/graph/outline_steps.h"
#include "kernels/graph/plan_body.h"

namespace weir {
namespace {

constexpr size_t kInlineOperands = 16;
constexpr size_t kNodesDescribed = 4;
// A run that was longer than those after it counts half as much after 44 runs.
constexpr int64_t kForgetRuns = 64;

// Two runs that end at once may overwrite each other; the next one mends it.
void KeepLongest(Atomic<int64_t>& kept, int64_t ns) {
  const int64_t longest = kept.load(std::memory_order_relaxed);
  const int64_t shorter = longest - (longest - ns) / kForgetRuns;
  kept.store(std::max({ns, shorter, int64_t{1}}), std::memory_order_relaxed);
}

// The device's team, for a run that may be given up.
class RunTeam final : public CpuTeam {
 public:
  RunTeam(CpuTeam& team, absl::FunctionRef<absl::Status()> go_on)
      : team_(team), go_on_(go_on) {}

  int size() const override { return team_.size(); }
  void Run(int64_t n, int64_t grain,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    team_.Run(n, grain, fn);
  }
  bool GivenUp() override {
    if (given_up_.load(std::memory_order_relaxed)) return true;
    absl::Status status = go_on_();
    if (status.ok()) return false;
    MutexLock lock(&mu_);
    if (status_.ok()) status_ = std::move(status);
    given_up_.store(true, std::memory_order_relaxed);
    return true;
  }

  // Why; OK if it was not. Between steps.
  absl::Status status() const {
    if (!given_up_.load(std::memory_order_relaxed)) return absl::OkStatus();
    MutexLock lock(&mu_);
    return status_;
  }

 private:
  CpuTeam& team_;
  const absl::FunctionRef<absl::Status()> go_on_;
  Atomic<bool> given_up_{false};
  mutable Mutex mu_;
  absl::Status status_ WEIR_GUARDED_BY(mu_);
};

const std::byte* Resolve(const Operand& operand, const ProgramRun& run) {
  switch (operand.base) {
    case Operand::Base::kAddress:
      return static_cast<const std::byte*>(operand.address);
    case Operand::Base::kInput:
      return static_cast<const std::byte*>(run.inputs[operand.input]);
    case Operand::Base::kOutputs:
      return run.outputs + operand.offset;
    case Operand::Base::kArena:
      return run.arena + operand.offset;
  }
  return nullptr;
}

}  // namespace

Plan::Plan() : body_(std::make_unique<Body>()) {}
Plan::~Plan() = default;

size_t Plan::steps() const { return body_->steps.size(); }

StepOutline Plan::Step(size_t i) const {
  const PlanStep& step = body_->steps[i];
  if (step.kernel == nullptr) {
    StepOutline outline = CopyStep(*core_, step.first_written);
    outline.outputs[0].shape =
        ToSymbolic(outputs_[step.first_written].meta.dims);
    return outline;
  }
  StepOutline outline = NodeStep(*core_, core_->graph.nodes[step.position]);
  outline.implementation = step.kernel->implementation();
  for (size_t k = 0; k < step.outputs; ++k) {
    const auto& [id, dims] = body_->written[step.first_written + k];
    const LoweredValue& value = core_->graph.values[static_cast<size_t>(id)];
    outline.outputs.push_back({value.name, value.dtype, ToSymbolic(dims)});
  }
  return outline;
}

std::string Plan::Describe() const {
  std::string text;
  for (size_t i = 0; i < steps(); ++i) {
    if (i == kNodesDescribed) {
      absl::StrAppend(&text, " and ", steps() - i, " more");
      break;
    }
    const PlanStep& step = body_->steps[i];
    absl::StrAppend(&text, text.empty() ? "" : ", ");
    if (step.kernel == nullptr) {
      absl::StrAppend(&text, "a copy");
      continue;
    }
    absl::StrAppend(&text, core_->graph.nodes[step.position].label);
  }
  return text;
}

absl::Status Plan::Run(const ProgramRun& run) const {
  if (run.inputs.size() != inputs_.size()) {
    return absl::InternalError(absl::StrCat("a run with ", run.inputs.size(),
                                            " inputs of a plan with ",
                                            inputs_.size()));
  }
  absl::InlinedVector<const void*, kInlineOperands> inputs;
  absl::InlinedVector<void*, kInlineOperands> outputs;
  std::optional<RunTeam> own_team;
  if (run.go_on.has_value() && run.team != nullptr) {
    own_team.emplace(*run.team, *run.go_on);
  }
  size_t unpaced = 0;  // launches
  CpuTeam* const team = own_team.has_value() ? &*own_team : run.team;
  for (const PlanStep& step : body_->steps) {
    if (run.go_on.has_value() && &step != &body_->steps.front()) {
      WEIR_RETURN_IF_ERROR((*run.go_on)());
    }
    if (run.pace.has_value()) {
      if (unpaced >= run.pace_launches) {
        WEIR_RETURN_IF_ERROR((*run.pace)());
        unpaced = 0;
      }
      unpaced += step.kernel == nullptr ? 1 : step.kernel->launches();
    }
    const Operand* operand = &body_->operands[step.first_operand];
    inputs.clear();
    for (uint32_t i = 0; i < step.inputs; ++i) {
      inputs.push_back(Resolve(*operand++, run));
    }
    outputs.clear();
    for (uint32_t i = 0; i < step.outputs; ++i) {
      // Outputs lie in the run's own blocks, which are the caller's to write.
      outputs.push_back(const_cast<std::byte*>(Resolve(*operand++, run)));
    }
    absl::Status status;
    if (step.kernel == nullptr) {
      status = run.stream.CopyOnDevice(outputs[0], inputs[0], step.copy_bytes);
    } else {
      status = step.kernel->Run(RunArgs{
          run.stream, team, inputs, outputs,
          step.has_scratch ? run.arena + step.scratch : nullptr, run.random,
          step.node, run.pace.has_value() ? &*run.pace : nullptr,
          run.go_on.has_value() ? &*run.go_on : nullptr});
    }
    // Before what the step says: it has seen pieces that were never made.
    if (own_team.has_value()) WEIR_RETURN_IF_ERROR(own_team->status());
    if (!status.ok()) {
      if (step.kernel == nullptr) return status;
      return NodeError(status, core_->graph.nodes[step.position]);
    }
  }
  return absl::OkStatus();
}

absl::Status Plan::FaultAt(uint32_t node, FaultCode code) const {
  absl::Status status = FaultStatus(code);
  if (node >= core_->position_of_node.size()) return status;
  const int at = core_->position_of_node[node];
  if (at < 0) return status;  // a node that no step computes
  return NodeError(status, core_->graph.nodes[static_cast<size_t>(at)]);
}

void Plan::RecordDuration(int64_t ns, int64_t device_ns) const {
  const int64_t before = measured_ns();
  const int64_t after = before == 0 ? ns : before + (ns - before) / 8;
  measured_ns_.store(after > 0 ? after : 1, std::memory_order_relaxed);
  KeepLongest(longest_ns_, ns);
  KeepLongest(longest_device_ns_, device_ns);
}

}  // namespace weir
