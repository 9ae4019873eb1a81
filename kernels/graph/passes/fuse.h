// Joins nodes into internal operators, so that a device may compute them as one
// step:
//
//   Conv [+ Add] [+ Relu | Clip]  ->  weir.FusedConv    (of pictures: rank 4)
//   MatMul + Add of a row         ->  weir.FusedMatMul  (one matrix on the
//                                                        right)
//   Div | Mul, Add                ->  weir.FusedElementwise  (masked scores)
//   Div | Mul, Erf, Add, Mul, Mul ->  weir.FusedElementwise  (exported Gelu)
//
// Device-neutral: a node is joined only if the device's kernel takes the
// result (KernelTraits::takes); elsewhere the graph stays as it is. What is
// joined has no other reader, so nothing is computed twice and no output of
// the graph is lost. Runs after inference and folding. Internal to this layer.
#pragma once

#include "kernels/device/device.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/ops/registry.h"

namespace weir {

void FuseNodes(LoweredGraph& graph, const OpRegistry& registry,
               const DeviceInfo& device);

}  // namespace weir
