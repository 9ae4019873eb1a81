#include "kernels/graph/evaluation_size.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/tensor/shape.h"

namespace weir {
namespace {

constexpr char kReason[] = "EVALUATION_TOO_LARGE";

constexpr int64_t kMostLaunches = int64_t{1} << 18;

// The rest of "the evaluation ...". `remedy` is in brackets.
absl::Status TooLarge(std::string_view asked, int64_t limit,
                      std::string_view remedy) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the evaluation ", AbslView(asked), "; the limit is ", limit,
                   " (", AbslView(remedy), ")"));
}

absl::Status PastLimit(std::string_view asked, int64_t limit,
                       std::string_view name) {
  return WithReason(
      TooLarge(asked, limit, name), kReason,
      {{"limit", absl::StrCat(limit)}, {"flag", std::string(name)}});
}

bool IsHalf(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16;
}

int64_t SideBySide(const LoweredNode& node, int64_t operations,
                   absl::Span<const TensorMeta> outputs) {
  int64_t elements = 0;
  for (const TensorMeta& output : outputs) elements += output.elements;
  if (node.def->test_only || elements == 0 || elements >= kElementsSideBySide) {
    return operations;
  }
  return std::max(operations,
                  SaturatingMul(operations / elements, kElementsSideBySide));
}

std::string Count(int64_t n) {
  return n == kSaturated ? "more than 2^63" : absl::StrCat(n);
}

}  // namespace

EvaluationLimits Resolve(const EvaluationLimits& limits,
                         const DeviceInfo& device) {
  EvaluationLimits resolved = limits;
  // A device that does not say (in tests) has as much as a tensor may be large.
  const int64_t share = device.total_memory > 0
                            ? std::max<int64_t>(device.total_memory / 4, 1)
                            : kMaxTensorBytes;
  const auto within = [share](int64_t bytes) {
    return std::min(bytes == 0 ? share : bytes, kMaxTensorBytes);
  };
  resolved.output_bytes = within(limits.output_bytes);
  resolved.scratch_bytes = within(limits.scratch_bytes);
  if (limits.launches == 0) resolved.launches = kMostLaunches;
  if (limits.operations == 0) {
    resolved.operations = device.default_max_operations;
  }
  return resolved;
}

NodeCost CostOf(
    const LoweredNode& node, Pace pace, absl::Span<const TensorMeta> inputs,
    absl::Span<const TensorMeta> outputs,
    absl::Span<const std::optional<std::vector<int64_t>>> host_ints) {
  std::vector<std::vector<int64_t>> ints(host_ints.size());
  for (size_t i = 0; i < ints.size(); ++i) {
    if (host_ints[i].has_value()) ints[i] = *host_ints[i];
  }
  return node.def->cost(node.info, pace, {inputs, outputs, ints});
}

int64_t CpuOperations(const LoweredNode& node, int64_t operations,
                      absl::Span<const TensorMeta> outputs) {
  int64_t weight = node.def->cpu_weight;
  const auto& inputs = node.info.input_types;
  const bool half = std::any_of(inputs.begin(), inputs.end(), IsHalf) ||
                    std::any_of(outputs.begin(), outputs.end(),
                                [](const auto& o) { return IsHalf(o.dtype); });
  if (weight > kProductCpuWeight) {
    if (half) weight += kHalfTypeCpuWeight;
  } else if (!half && inputs.size() > 1 && inputs[0] != DType::kFloat) {
    weight = kOwnProductCpuWeight;
  }
  return SaturatingMul(operations, weight);
}

absl::Status EvaluationSize::AddNode(const LoweredNode& node, Pace pace,
                                     const NodeCost& cost,
                                     absl::Span<const TensorMeta> outputs) {
  const int64_t operations = pace == Pace::kInTurn
                                 ? CpuOperations(node, cost.operations, outputs)
                                 : SideBySide(node, cost.operations, outputs);
  operations_ = SaturatingAdd(operations_, operations);
  if (operations > longest_operations_) {
    longest_operations_ = operations;
    longest_ = &node;
  }
  if (operations_ <= limits_.operations) return absl::OkStatus();
  return NodeError(
      PastLimit(absl::StrCat("would run ", Count(operations_), " operations, ",
                             Count(longest_operations_), " of them here"),
                limits_.operations, limits_.operations_name),
      *longest_);
}

absl::Status EvaluationSize::AddIfKnown(const LoweredNode& node, Pace pace,
                                        const NodeInputs& inputs,
                                        absl::Span<const TypedShape> outputs) {
  std::vector<TensorMeta> input_metas(node.inputs.size());
  std::vector<TensorMeta> output_metas;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    std::optional<Dims> dims = ToConcrete(inputs.shapes[i]);
    if (!dims.has_value()) return absl::OkStatus();
    input_metas[i] = MakeMeta(node.info.input_types[i], *std::move(dims));
  }
  for (const TypedShape& output : outputs) {
    std::optional<Dims> dims = ToConcrete(output.shape);
    if (!dims.has_value()) return absl::OkStatus();
    output_metas.push_back(MakeMeta(output.dtype, *std::move(dims)));
  }
  return AddNode(
      node, pace,
      CostOf(node, pace, input_metas, output_metas, inputs.host_ints),
      output_metas);
}

absl::Status EvaluationSize::AddOutput(std::string_view name,
                                       const LoweredNode* producer,
                                       size_t bytes) {
  output_bytes_ = SaturatingAdd(output_bytes_, static_cast<int64_t>(bytes));
  if (output_bytes_ <= limits_.output_bytes) return absl::OkStatus();
  const absl::Status status = PastLimit(
      absl::StrCat("would have ", output_bytes_, " bytes of outputs or more, ",
                   bytes, " of them \"", AbslView(name), "\""),
      limits_.output_bytes, limits_.output_bytes_name);
  return producer == nullptr ? status : NodeError(status, *producer);
}

absl::Status EvaluationSize::CheckScratch(int64_t total, int64_t largest,
                                          const LoweredNode& node) const {
  if (total <= limits_.scratch_bytes) return absl::OkStatus();
  return NodeError(PastLimit(absl::StrCat("would need ", Count(total),
                                          " bytes between inputs and outputs, ",
                                          Count(largest), " of them here"),
                             limits_.scratch_bytes, limits_.scratch_bytes_name),
                   node);
}

absl::Status EvaluationSize::CheckLaunches(int64_t total, int64_t most,
                                           const LoweredNode* node) const {
  if (total <= limits_.launches) return absl::OkStatus();
  std::string asked = absl::StrCat("would take ", total, " launches or more");
  if (node != nullptr) absl::StrAppend(&asked, ", ", most, " of them here");
  const absl::Status status =
      WithReason(TooLarge(asked, limits_.launches, "split it into several"),
                 kReason, {{"limit", absl::StrCat(limits_.launches)}});
  return node == nullptr ? status : NodeError(status, *node);
}

}  // namespace weir
