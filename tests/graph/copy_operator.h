// What the operators of tests have in common that answer what they are given:
// y = x, x of floats.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"

namespace weir::testing {

// Of weir.NAME.
inline OpDef CopyDef(std::string_view name) {
  OpDef def;
  def.domain = "weir";
  def.name = name;
  def.inputs = {{.name = "X", .types = {DType::kFloat}}};
  def.outputs = {{.name = "Y"}};
  def.infer = [](InferContext& c) {
    c.SetOutput(0, DType::kFloat, c.input_shape(0));
    return absl::OkStatus();
  };
  def.cost = LinearCost;
  return def;
}

// On the CPU and on CUDA.
class CopyKernel final : public Kernel {
 public:
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return std::make_unique<const CopyPlan>(args.outputs[0].bytes);
  }

 private:
  class CopyPlan final : public KernelPlan {
   public:
    explicit CopyPlan(size_t bytes) : bytes_(bytes) {}
    absl::Status Run(const RunArgs& run) const override {
      return run.stream.CopyOnDevice(run.outputs[0], run.inputs[0], bytes_);
    }

   private:
    const size_t bytes_;
  };
};

}  // namespace weir::testing
