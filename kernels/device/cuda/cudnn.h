// cuDNN, opened when the first program with a convolution is compiled. A
// convolution, with what is added to its sums before they are rounded, is one
// graph of cuDNN's; which of its engines computes it is settled when it is
// prepared. Handles are not thread-safe, and to make one waits for the driver,
// so launches take one each from those that were made ahead. Thread-safe.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/device/stream.h"

namespace weir::cuda {

// y = conv(x, weights) [+ residual] [+ bias] over dense tensors, summed in
// float (double for double) and rounded once. At least two spatial axes.
struct ConvolutionSpec {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<int64_t> in;       // N, C, spatial
  std::vector<int64_t> weights;  // M, C / groups, spatial
  std::vector<int64_t> out;      // N, M, spatial
  std::vector<int64_t> pad_begin, pad_end, stride, dilation;
  // In memory: N x spatial x C, and weights M x spatial x C / groups.
  bool channels_last = false;
  bool residual = false;  // of the shape and layout of `out`
  bool bias = false;      // M elements
};

struct ConvolutionOperands {
  const void* in = nullptr;
  const void* weights = nullptr;
  const void* residual = nullptr;
  const void* bias = nullptr;
  void* out = nullptr;
};

class Cudnn;

// Prepared for its shapes. Immutable; runs may overlap.
class Convolution {
 public:
  ~Convolution();
  size_t scratch_bytes() const { return scratch_bytes_; }
  // cuDNN tells no size of its plans. An assumption, not measured: descriptors
  // of a few kilobytes and the code of a few kernels, some tens of kilobytes,
  // which cuDNN loads once for all plans that share it. So it counts too much
  // rather than too little, unless an engine compiles kernels of its own.
  static constexpr size_t kHeldBytes = size_t{64} << 10;
  // Every operand begins at a multiple of 16 bytes, scratch of 256.
  absl::Status Run(Stream& stream, const ConvolutionOperands& operands,
                   void* scratch) const;

 private:
  friend class Cudnn;
  explicit Convolution(Cudnn* library) : library_(library) {}

  Cudnn* const library_;
  bool residual_ = false;
  bool bias_ = false;
  cudnnBackendDescriptor_t plan_ = nullptr;
  size_t scratch_bytes_ = 0;
};

class Cudnn {
 public:
  // UNIMPLEMENTED naming the library if it is missing; FAILED_PRECONDITION if
  // it is of another major version.
  static absl::StatusOr<std::unique_ptr<Cudnn>> Open();
  ~Cudnn();

  // The first engine of cuDNN's heuristics that answers the same every time, in
  // the precision of `spec.type`. UNIMPLEMENTED where there is none.
  // REQUIRES: the calling thread has set the device; sizes are positive.
  absl::StatusOr<std::shared_ptr<const Convolution>> Prepare(
      const ConvolutionSpec& spec);

  // From now on so many threads may be in Convolution::Run at once without one
  // of them waiting for the driver. Handles are kept once made. REQUIRES: as
  // Prepare.
  absl::Status ExpectLaunches(size_t at_once);

 private:
  friend class Convolution;
  friend class Descriptor;
  class Handle;  // taken from those of its purpose, and given back
  struct Handles {
    Mutex mu;
    std::vector<cudnnHandle_t> unused WEIR_GUARDED_BY(mu);
  };
  Cudnn() = default;
  absl::Status Check(cudnnStatus_t status, const char* what) const;
  absl::StatusOr<cudnnHandle_t> MakeHandle();

  Handles preparing_;
  Handles launching_;
  Mutex making_mu_;  // held while some are made
  size_t made_for_launches_ WEIR_GUARDED_BY(making_mu_) = 0;

  decltype(&cudnnGetVersion) version_ = nullptr;
  decltype(&cudnnGetErrorString) error_string_ = nullptr;
  decltype(&cudnnCreate) create_ = nullptr;
  decltype(&cudnnDestroy) destroy_ = nullptr;
  decltype(&cudnnSetStream) set_stream_ = nullptr;
  decltype(&cudnnBackendCreateDescriptor) descriptor_create_ = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) descriptor_destroy_ = nullptr;
  decltype(&cudnnBackendSetAttribute) attribute_set_ = nullptr;
  decltype(&cudnnBackendGetAttribute) attribute_get_ = nullptr;
  decltype(&cudnnBackendFinalize) finalize_ = nullptr;
  decltype(&cudnnBackendExecute) execute_ = nullptr;
};

}  // namespace weir::cuda
