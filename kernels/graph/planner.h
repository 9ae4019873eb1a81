// Makes plans: runs inference with sizes, evaluates on the host what shapes
// depend on, checks how large the evaluation is, plans the kernels, lays out
// memory. One object per plan; any thread. Internal to this layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/stop_token.h"
#include "kernels/graph/evaluation_size.h"
#include "kernels/graph/host_evaluator.h"
#include "kernels/graph/plan.h"
#include "kernels/graph/plan_body.h"
#include "kernels/graph/program_core.h"

namespace weir {

// About what a step and its kernel take in a plan.
inline constexpr size_t kPlanBytesPerNode = 512;
// The same of an operand: where it lies, its dims, what a kernel keeps of it.
inline constexpr size_t kPlanBytesPerOperand = 128;

class Planner {
 public:
  // CANCELLED at the next node once `stop` is requested.
  Planner(std::shared_ptr<const ProgramCore> core, StopToken stop);

  absl::StatusOr<std::shared_ptr<const Plan>> Make(
      absl::Span<const HostTensor> inputs);

 private:
  struct Value {
    TensorMeta meta;
    std::shared_ptr<const Constant> host;  // null: not known on the host
    int step = -1;                         // the step that makes it, of a root
    size_t last_step = 0;                  // the last that reads it, of a root
    bool in_outputs = false;
    size_t offset = 0;
  };
  struct Draft {
    int node;  // -1: copies inputs[0] to graph output `output`
    size_t output = 0;
    std::unique_ptr<const KernelPlan> kernel;
    std::vector<int> inputs;  // kNoValue where missing
    std::vector<int> outputs;
    bool computes = false;  // has or needs a kernel
    std::vector<std::vector<int64_t>> host_ints;
    // Before there is a kernel: as its cost says.
    int64_t scratch_bytes = 0;
  };

  const LoweredGraph& graph() const { return core_->graph; }
  Value& value(int id) { return values_[static_cast<size_t>(id)]; }
  int root(int id) const { return core_->roots[static_cast<size_t>(id)]; }

  absl::Status CheckStop() const;
  absl::Status TakeInputs(absl::Span<const HostTensor> inputs);
  absl::Status CheckInput(size_t i, const HostTensor& input) const;
  absl::Status PlanNode(size_t position);
  absl::Status ReadHostInputs(const LoweredNode& node);
  absl::Status AddStep(size_t position, const NodeCost& cost,
                       absl::Span<const TensorMeta> outputs);
  absl::StatusOr<bool> EvaluateOnHost(size_t position);
  absl::Status ShareInput(const LoweredNode& node);
  absl::Status PlaceOutputs();
  absl::Status PlanKernels();
  absl::Status CheckLaunches(int64_t most, const LoweredNode* node) const;
  absl::Status PlaceValues();
  absl::Status UploadHostValues();
  Operand Locate(int id, bool on_host) const;
  void Emit();

  const std::shared_ptr<const ProgramCore> core_;
  const StopToken stop_;
  std::unique_ptr<Plan> plan_;
  absl::Span<const HostTensor> given_;
  std::vector<Value> values_;
  std::vector<Draft> drafts_;
  std::vector<const void*> uploaded_;  // by value: a host value's address
  std::vector<size_t> scratch_;        // by draft: offset
  HostBudget host_budget_;
  DigestBudget digest_budget_;
  EvaluationSize size_;

  // What a digest said, by the value and the operator that asked.
  std::map<std::pair<int, const OpDef*>, std::vector<int64_t>> digests_;
  // How long the device may take to compute what was planned, at most.
  int64_t computing_ns_ = 0;

  // Of the node being planned.
  std::vector<std::optional<std::vector<int64_t>>> host_ints_;
  std::vector<TensorMeta> input_metas_;
};

}  // namespace weir
