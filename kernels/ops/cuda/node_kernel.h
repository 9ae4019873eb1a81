// How an operator's CUDA kernel is written: a function from node and device to
// a PlanFunction, whose RunFunction enqueues on the stream. Any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/spatial_window.h"

namespace weir::cuda {

using CompileFunction = std::function<absl::StatusOr<PlanFunction>(
    const NodeInfo& node, CudaDevice* device)>;

// NOT_FOUND for an operator that nothing defines: a misspelt name.
absl::Status RegisterNode(OpRegistry& registry, std::string_view domain,
                          std::string_view name, CompileFunction compile,
                          KernelTraits traits = {});

// For KernelTraits::scratch_bytes: of kernels that take none but what a library
// asks for, and of one long reduction in two steps over input 0, which holds 16
// bytes for 64 elements or more between them.
int64_t NoScratch(const NodeInfo& node, const PlanArgs& args);
int64_t PartialResults(const NodeInfo& node, const PlanArgs& args);

// UNIMPLEMENTED if an input is text.
absl::Status RefuseStrings(const NodeInfo& node);

// As array fields of a kernel's arguments: sizes in, out and of the window, its
// strides, dilations, and pads in front.
void AddSpatialAxes(const SpatialAxes& axes, Words* words);

inline bool IsMissing(const PlanArgs& args, size_t i) {
  return i >= args.inputs.size() || args.inputs[i].dtype == DType::kInvalid;
}
inline const void* InputOrNull(const RunArgs& run, size_t i) {
  return i < run.inputs.size() ? run.inputs[i] : nullptr;
}
inline void* OutputOrNull(const RunArgs& run, size_t i) {
  return i < run.outputs.size() ? run.outputs[i] : nullptr;
}

// One for each file with kernels: RegisterMovement and the others.
#define KERNELS(file, Name) absl::Status Register##Name(OpRegistry& registry);
#define TEXT(file, Name)
#include "kernels/ops/cuda/kernels.def"
#undef TEXT
#undef KERNELS

}  // namespace weir::cuda
