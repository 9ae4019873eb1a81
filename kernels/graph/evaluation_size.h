// Sums up what an evaluation takes, node by node, and refuses it as soon as a
// limit is passed. The same for all who walk a graph: compilation (what is
// known without inputs), outlines and plans. Used by one thread. Internal to
// this layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/graph/evaluation_limits.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/graph/node_inference.h"

namespace weir {

// What `node` takes at this pace. `host_ints` are empty where not known.
NodeCost CostOf(
    const LoweredNode& node, Pace pace, absl::Span<const TensorMeta> inputs,
    absl::Span<const TensorMeta> outputs,
    absl::Span<const std::optional<std::vector<int64_t>>> host_ints);

// Of `operations`, a node's cost, what counts on a CPU: see OpDef::cpu_weight.
int64_t CpuOperations(const LoweredNode& node, int64_t operations,
                      absl::Span<const TensorMeta> outputs);

class EvaluationSize {
 public:
  // `limits` are resolved.
  explicit EvaluationSize(const EvaluationLimits& limits) : limits_(limits) {}

  // Counts the node's operations: in turn by their weight (OpDef::cpu_weight);
  // side by side a thread makes an element, and what makes fewer than
  // kElementsSideBySide takes as long as so many.
  absl::Status AddNode(const LoweredNode& node, Pace pace, const NodeCost& cost,
                       absl::Span<const TensorMeta> outputs);
  // The same if all shapes are known, else nothing.
  absl::Status AddIfKnown(const LoweredNode& node, Pace pace,
                          const NodeInputs& inputs,
                          absl::Span<const TypedShape> outputs);
  // `producer` is null for an input or a constant.
  absl::Status AddOutput(std::string_view name, const LoweredNode* producer,
                         size_t bytes);

  // `total` bytes between inputs and outputs, the largest block of them for
  // `node`.
  absl::Status CheckScratch(int64_t total, int64_t largest,
                            const LoweredNode& node) const;

  // `total` launches, the most of one node, which is `node`; null: all copy
  // inputs to outputs.
  absl::Status CheckLaunches(int64_t total, int64_t most,
                             const LoweredNode* node) const;

  int64_t operations() const { return operations_; }

 private:
  const EvaluationLimits limits_;
  int64_t operations_ = 0;
  int64_t output_bytes_ = 0;
  // The largest so far, which an error names.
  const LoweredNode* longest_ = nullptr;
  int64_t longest_operations_ = -1;
};

}  // namespace weir
