// The internal operator weir.Relayout: the same tensor in the other layout
// (kernels/graph/passes/layout.h).
#include <utility>

#include "kernels/ops/infer.h"
#include "kernels/ops/movement.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

absl::StatusOr<std::unique_ptr<const Kernel>> MakeRelayoutKernel(
    const NodeInfo&, Device&) {
  return MakeKernel([](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const TensorMeta& x = args.inputs[0];
    return RunFunction([copy = RelayoutCopy(x.dims, x.layout, SizeOf(x.dtype))](
                           const RunArgs& run) {
      copy.Run(run.team, run.inputs[0], run.outputs[0]);
      return absl::OkStatus();
    });
  });
}

}  // namespace

absl::Status Register_weir_Relayout(OpRegistry& registry) {
  OpDef def;
  def.domain = "weir";
  def.name = "Relayout";
  def.doc = "The same tensor in another layout.";
  def.internal = true;
  def.inputs = {{.name = "X", .types = kFixedTypes}};
  def.outputs = {{.name = "Y"}};
  def.infer = InferSameAsInput;
  def.cost = LinearCost;
  return registry.Register(std::move(def), MakeRelayoutKernel);
}

}  // namespace weir
