// What CUDA itself does, with nothing of weir's between: the limits that the
// GPU benchmarks compare with. One per process; any thread.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/driver_api.h"

namespace weir::bench {

class BareCuda {
 public:
  // Compiles `source`, which holds one extern "C" kernel `weir_kernel`.
  static absl::StatusOr<BareCuda> Create(const std::string& source);

  absl::Status Launch(cudaStream_t stream, unsigned blocks, unsigned threads,
                      void** params) const;

 private:
  DriverApi driver_;
  CUfunction function_ = nullptr;
};

// Ends the program with the error printed.
void Check(const absl::Status& status);
void CheckCuda(cudaError_t error, const char* what);

}  // namespace weir::bench
