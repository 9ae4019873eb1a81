// The few driver functions that the runtime does not offer, found through the
// runtime, so that nothing links libcuda. Immutable after Load; any thread.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "absl/status/status.h"

namespace weir {

struct DriverApi {
  PFN_cuStreamWriteValue64_v11070 stream_write_value64 = nullptr;
  PFN_cuStreamWaitValue64_v11070 stream_wait_value64 = nullptr;
  PFN_cuDeviceGet_v2000 device_get = nullptr;
  PFN_cuDeviceGetAttribute_v2000 device_get_attribute = nullptr;
  PFN_cuStreamQuery_v2000 stream_query = nullptr;
  PFN_cuModuleLoadData_v2000 module_load_data = nullptr;
  PFN_cuModuleUnload_v2000 module_unload = nullptr;
  PFN_cuModuleGetFunction_v2000 module_get_function = nullptr;
  PFN_cuLaunchKernel_v4000 launch_kernel = nullptr;

  // REQUIRES: a driver is installed. FAILED_PRECONDITION names what is missing.
  absl::Status Load();
};

}  // namespace weir
