// How large one evaluation may be. What is larger is refused before anything is
// planned, allocated or run: RESOURCE_EXHAUSTED, reason EVALUATION_TOO_LARGE,
// naming the node. Plain data.
#pragma once

#include <cstdint>

#include "kernels/base/export.h"
#include "kernels/device/device.h"

namespace weir {

struct EvaluationLimits {
  // Bytes of all its outputs; 0: a quarter of the device's memory. At most
  // kMaxTensorBytes.
  int64_t output_bytes = 0;
  // Bytes of what lies between inputs and outputs, and of the kernels' scratch
  // memory; 0, and at most, as before.
  int64_t scratch_bytes = 0;
  // As NodeCost counts them; 0: on a GPU 10^14, seconds of it; on the CPU 10^12
  // for each of its threads, some hundred seconds of products, and no more.
  int64_t operations = 0;
  // Calls that hand a device of its own the steps, as KernelPlan::launches
  // counts them; 0: 2^18, about a second of a thread's time. The CPU has none.
  int64_t launches = 0;
  // What errors call the first three: the flags that set them, where there are
  // any.
  const char* output_bytes_name = "output_bytes";
  const char* scratch_bytes_name = "scratch_bytes";
  const char* operations_name = "operations";
};

// With what 0 stands for.
WEIR_EXPORT EvaluationLimits Resolve(const EvaluationLimits& limits,
                                     const DeviceInfo& device);

}  // namespace weir
