// Chooses in which layout each value lies between the steps of a program.
// Convolutions of pictures want channels last where the device's kernel takes
// them so (KernelTraits::channels_last); pools, and elementwise operators over
// whole tensors, follow. Everything else, and every input and output of the
// graph, is row-major; between the two stand weir.Relayout nodes, one for each
// value at most, and none for constants, which are moved here. A value's dims
// do not change. Device-neutral: on a device whose kernels take no channels
// last the graph stays as it is. `host` is whose kernels the host runs. Runs
// after FuseNodes. Internal to this layer.
#pragma once

#include "kernels/device/device.h"
#include "kernels/graph/lowered_graph.h"
#include "kernels/ops/registry.h"

namespace weir {

void ChooseLayouts(LoweredGraph& graph, const OpRegistry& registry,
                   const DeviceInfo& device, const DeviceInfo& host);

}  // namespace weir
