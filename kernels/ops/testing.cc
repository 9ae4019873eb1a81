#include "kernels/ops/testing.h"

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

constexpr int64_t kMaxMicroseconds = 60'000'000;

// In the order of FaultMode.
constexpr const char* kFaultModes[] = {"report", "index", "illegal_address",
                                       "trap"};

absl::Status InferSpin(InferContext& context) {
  WEIR_RETURN_IF_ERROR(SpinTimeOf(context.node()).status());
  return InferSameAsInput(context);
}

// A spinning GPU gets through some thousand operations in a microsecond.
NodeCost SpinCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  cost.operations =
      SaturatingAdd(cost.operations, SpinTimeOf(node).value_or(0));
  return cost;
}

absl::Status InferFault(InferContext& context) {
  WEIR_RETURN_IF_ERROR(FaultModeOf(context.node()).status());
  return InferSameAsInput(context);
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeSpinKernel(
    const NodeInfo& node, Device&) {
  WEIR_ASSIGN_OR_RETURN(const Nanos duration, SpinTimeOf(node));
  return MakeKernel(
      [duration](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
        return RunFunction(
            [duration, bytes = args.inputs[0].bytes](const RunArgs& run) {
              const Nanos end = NowNanos() + duration;
              while (NowNanos() < end) {
              }
              if (bytes > 0) std::memcpy(run.outputs[0], run.inputs[0], bytes);
              return absl::OkStatus();
            });
      });
}

// A CPU is not lost by itself: this is what a lost one would look like.
absl::StatusOr<std::unique_ptr<const Kernel>> MakePoisonKernel(FaultMode mode,
                                                               Device& device) {
  return MakeKernel(
      [mode, &device](const PlanArgs&) -> absl::StatusOr<RunFunction> {
        return RunFunction([mode, &device](const RunArgs&) {
          device.health().Poison(WithReason(
              absl::UnavailableError(absl::StrCat(
                  "weir.Fault, mode ", kFaultModes[static_cast<size_t>(mode)])),
              "DEVICE_FAULT"));
          return device.health().status();
        });
      });
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeFaultKernel(
    const NodeInfo& node, Device& device) {
  WEIR_ASSIGN_OR_RETURN(const FaultMode mode, FaultModeOf(node));
  if (mode != FaultMode::kReport && mode != FaultMode::kIndex) {
    return MakePoisonKernel(mode, device);
  }
  const FaultCode code = mode == FaultMode::kIndex ? FaultCode::kIndexOutOfRange
                                                   : FaultCode::kInjected;
  return MakeKernel([code](const PlanArgs&) -> absl::StatusOr<RunFunction> {
    return RunFunction([code](const RunArgs&) { return FaultStatus(code); });
  });
}

}  // namespace

absl::StatusOr<Nanos> SpinTimeOf(const NodeInfo& node) {
  const int64_t duration = node.attributes.Int("microseconds", 0);
  if (duration < 0 || duration > kMaxMicroseconds) {
    return absl::InvalidArgumentError(absl::StrCat("microseconds of ", duration,
                                                   " is outside [0, ",
                                                   kMaxMicroseconds, "]"));
  }
  return duration * 1000;
}

absl::StatusOr<FaultMode> FaultModeOf(const NodeInfo& node) {
  const std::string mode = node.attributes.String("mode", "report");
  for (const FaultMode known : {FaultMode::kReport, FaultMode::kIndex,
                                FaultMode::kIllegalAddress, FaultMode::kTrap}) {
    if (mode == kFaultModes[static_cast<size_t>(known)]) return known;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("mode ", QuoteStart(mode),
                   " is none of report, index, illegal_address and trap"));
}

absl::Status Register_weir_Spin(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Spin";
  def.doc = "Keeps its stream busy for a time, then copies its input.";
  def.inputs = {{.name = "input", .types = kFixedTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {{"microseconds", AttributeType::kInt, false,
                     "Default 0, at most 60,000,000."}};
  def.test_only = true;
  def.infer = InferSpin;
  def.cost = SpinCost;
  return registry.Register(std::move(def), MakeSpinKernel);
}

absl::Status Register_weir_Fault(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Fault";
  def.doc = "Fails when it runs.";
  def.inputs = {{.name = "input", .types = kFixedTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"mode", AttributeType::kString, false,
       "report (default: an injected fault), index (an index out of range), "
       "illegal_address or trap, which poison the device."}};
  def.test_only = true;
  def.infer = InferFault;
  def.cost = LinearCost;
  return registry.Register(std::move(def), MakeFaultKernel);
}

}  // namespace weir
