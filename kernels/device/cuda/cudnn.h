// cuDNN, opened when the first program with a convolution is compiled. Handles
// are not thread-safe, so launches take one each from a list that grows to the
// number of threads that launch at once. Thread-safe.
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

// A convolution of dense tensors, N x C x spatial (at least two spatial axes),
// with the same padding on both sides.
struct ConvolutionSpec {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int groups = 1;
  std::vector<int> in;       // N, C, spatial
  std::vector<int> weights;  // M, C / groups, spatial
  std::vector<int> out;      // N, M, spatial
  std::vector<int> pad, stride, dilation;
  // Floats that hold values of a half type: their products are exact on tensor
  // cores in TF32, which has as many significant bits as float16.
  bool exact_in_tf32 = false;
};

class Cudnn;

// Prepared for its shapes. Immutable; runs may overlap.
class Convolution {
 public:
  ~Convolution();
  size_t scratch_bytes() const { return scratch_bytes_; }
  absl::Status Run(Stream& stream, const void* in, const void* weights,
                   void* out, void* scratch) const;

 private:
  friend class Cudnn;
  explicit Convolution(Cudnn* library) : library_(library) {}

  Cudnn* const library_;
  bool is_double_ = false;
  cudnnTensorDescriptor_t in_ = nullptr;
  cudnnTensorDescriptor_t out_ = nullptr;
  cudnnFilterDescriptor_t weights_ = nullptr;
  cudnnConvolutionDescriptor_t convolution_ = nullptr;
  cudnnConvolutionFwdAlgo_t algorithm_ =
      CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM;
  size_t scratch_bytes_ = 0;
};

class Cudnn {
 public:
  // UNIMPLEMENTED naming the library if it is missing; FAILED_PRECONDITION if
  // it is of another major version.
  static absl::StatusOr<std::unique_ptr<Cudnn>> Open();
  ~Cudnn();

  // REQUIRES: the calling thread has set the device; sizes are positive.
  absl::StatusOr<std::shared_ptr<const Convolution>> Prepare(
      const ConvolutionSpec& spec);

 private:
  friend class Convolution;
  Cudnn() = default;
  absl::Status Check(cudnnStatus_t status, const char* what) const;
  absl::StatusOr<cudnnHandle_t> TakeHandle();
  void ReturnHandle(cudnnHandle_t handle);

  Mutex mu_;
  std::vector<cudnnHandle_t> handles_ WEIR_GUARDED_BY(mu_);  // not in use

  decltype(&cudnnGetVersion) version_ = nullptr;
  decltype(&cudnnGetErrorString) error_string_ = nullptr;
  decltype(&cudnnCreate) create_ = nullptr;
  decltype(&cudnnDestroy) destroy_ = nullptr;
  decltype(&cudnnSetStream) set_stream_ = nullptr;
  decltype(&cudnnCreateTensorDescriptor) tensor_create_ = nullptr;
  decltype(&cudnnDestroyTensorDescriptor) tensor_destroy_ = nullptr;
  decltype(&cudnnSetTensorNdDescriptor) tensor_set_ = nullptr;
  decltype(&cudnnCreateFilterDescriptor) filter_create_ = nullptr;
  decltype(&cudnnDestroyFilterDescriptor) filter_destroy_ = nullptr;
  decltype(&cudnnSetFilterNdDescriptor) filter_set_ = nullptr;
  decltype(&cudnnCreateConvolutionDescriptor) convolution_create_ = nullptr;
  decltype(&cudnnDestroyConvolutionDescriptor) convolution_destroy_ = nullptr;
  decltype(&cudnnSetConvolutionNdDescriptor) convolution_set_ = nullptr;
  decltype(&cudnnSetConvolutionGroupCount) set_groups_ = nullptr;
  decltype(&cudnnSetConvolutionMathType) set_math_ = nullptr;
  decltype(&cudnnGetConvolutionForwardAlgorithm_v7) algorithms_ = nullptr;
  decltype(&cudnnConvolutionForward) forward_ = nullptr;
};

}  // namespace weir::cuda
