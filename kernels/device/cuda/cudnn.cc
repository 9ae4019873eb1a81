#include "kernels/device/cuda/cudnn.h"

#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/dynamic_library.h"

namespace weir::cuda {
namespace {

constexpr char kSoname[] = "libcudnn.so.9";
constexpr size_t kMaxWorkspace = size_t{256} << 20;

// cuDNN counts elements in int.
absl::StatusOr<std::vector<int>> DenseStrides(const std::vector<int>& dims) {
  std::vector<int> strides(dims.size(), 1);
  int elements = 1;
  bool fits = true;
  for (size_t d = dims.size(); d-- > 0;) {
    strides[d] = elements;
    fits &= !__builtin_mul_overflow(elements, dims[d], &elements);
  }
  if (!fits) {
    return absl::UnimplementedError(
        absl::StrCat("a tensor of shape [", absl::StrJoin(dims, ","),
                     "] has more elements than cuDNN takes, 2^31 - 1"));
  }
  return strides;
}

// Winograd and FFT trade accuracy for speed, which strict precision forbids.
bool IsDirect(cudnnConvolutionFwdAlgo_t algorithm) {
  return algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_GEMM ||
         algorithm == CUDNN_CONVOLUTION_FWD_ALGO_DIRECT;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Cudnn>> Cudnn::Open() {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(kSoname);
  if (!library.ok()) {
    return absl::UnimplementedError(absl::StrCat(
        "needs cuDNN 9: ", absl::string_view(library.status().message())));
  }
  std::unique_ptr<Cudnn> dnn(new Cudnn());
  const DynamicLibrary& l = *library;
  WEIR_RETURN_IF_ERROR(l.Load("cudnnGetVersion", &dnn->version_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnGetErrorString", &dnn->error_string_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnCreate", &dnn->create_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnDestroy", &dnn->destroy_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnSetStream", &dnn->set_stream_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnCreateTensorDescriptor", &dnn->tensor_create_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnDestroyTensorDescriptor", &dnn->tensor_destroy_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnSetTensorNdDescriptor", &dnn->tensor_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnCreateFilterDescriptor", &dnn->filter_create_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnDestroyFilterDescriptor", &dnn->filter_destroy_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnSetFilterNdDescriptor", &dnn->filter_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnCreateConvolutionDescriptor", &dnn->convolution_create_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnDestroyConvolutionDescriptor", &dnn->convolution_destroy_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnSetConvolutionNdDescriptor", &dnn->convolution_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnSetConvolutionGroupCount", &dnn->set_groups_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnSetConvolutionMathType", &dnn->set_math_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cudnnGetConvolutionForwardAlgorithm_v7", &dnn->algorithms_));
  WEIR_RETURN_IF_ERROR(l.Load("cudnnConvolutionForward", &dnn->forward_));
  const size_t version = dnn->version_();
  if (version / 10000 != CUDNN_MAJOR) {
    return absl::FailedPreconditionError(
        absl::StrCat(l.path(), " is cuDNN ", version, "; this build needs ",
                     CUDNN_MAJOR, ".x"));
  }
  return dnn;
}

Cudnn::~Cudnn() {
  MutexLock lock(&mu_);
  for (cudnnHandle_t handle : handles_) (void)destroy_(handle);
}

absl::Status Cudnn::Check(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", error_string_(status));
  if (status == CUDNN_STATUS_NOT_SUPPORTED) {
    return absl::UnimplementedError(text);
  }
  const cudaError_t error = cudaPeekAtLastError();
  if (IsSticky(error)) return CudaStatus(error, what);
  return absl::InternalError(text);
}

absl::StatusOr<cudnnHandle_t> Cudnn::TakeHandle() {
  {
    MutexLock lock(&mu_);
    if (!handles_.empty()) {
      cudnnHandle_t handle = handles_.back();
      handles_.pop_back();
      return handle;
    }
  }
  cudnnHandle_t handle = nullptr;
  WEIR_RETURN_IF_ERROR(Check(create_(&handle), "cudnnCreate"));
  return handle;
}

void Cudnn::ReturnHandle(cudnnHandle_t handle) {
  MutexLock lock(&mu_);
  handles_.push_back(handle);
}

absl::StatusOr<std::shared_ptr<const Convolution>> Cudnn::Prepare(
    const ConvolutionSpec& spec) {
  std::shared_ptr<Convolution> result(new Convolution(this));
  Convolution& c = *result;
  c.is_double_ = spec.type == CUDNN_DATA_DOUBLE;
  const int rank = static_cast<int>(spec.in.size());
  auto tensor = [&](cudnnTensorDescriptor_t* descriptor,
                    const std::vector<int>& dims) -> absl::Status {
    WEIR_RETURN_IF_ERROR(
        Check(tensor_create_(descriptor), "cudnnCreateTensorDescriptor"));
    WEIR_ASSIGN_OR_RETURN(const std::vector<int> strides, DenseStrides(dims));
    return Check(
        tensor_set_(*descriptor, spec.type, rank, dims.data(), strides.data()),
        "cudnnSetTensorNdDescriptor");
  };
  WEIR_RETURN_IF_ERROR(tensor(&c.in_, spec.in));
  WEIR_RETURN_IF_ERROR(tensor(&c.out_, spec.out));
  WEIR_RETURN_IF_ERROR(DenseStrides(spec.weights).status());
  WEIR_RETURN_IF_ERROR(
      Check(filter_create_(&c.weights_), "cudnnCreateFilterDescriptor"));
  WEIR_RETURN_IF_ERROR(
      Check(filter_set_(c.weights_, spec.type, CUDNN_TENSOR_NCHW, rank,
                        spec.weights.data()),
            "cudnnSetFilterNdDescriptor"));
  WEIR_RETURN_IF_ERROR(Check(convolution_create_(&c.convolution_),
                             "cudnnCreateConvolutionDescriptor"));
  WEIR_RETURN_IF_ERROR(Check(
      convolution_set_(c.convolution_, rank - 2, spec.pad.data(),
                       spec.stride.data(), spec.dilation.data(),
                       CUDNN_CROSS_CORRELATION,
                       c.is_double_ ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT),
      "cudnnSetConvolutionNdDescriptor"));
  WEIR_RETURN_IF_ERROR(Check(set_groups_(c.convolution_, spec.groups),
                             "cudnnSetConvolutionGroupCount"));
  const bool half =
      spec.type == CUDNN_DATA_HALF || spec.type == CUDNN_DATA_BFLOAT16;
  const cudnnMathType_t math = half                 ? CUDNN_TENSOR_OP_MATH
                               : spec.exact_in_tf32 ? CUDNN_DEFAULT_MATH
                                                    : CUDNN_FMA_MATH;
  WEIR_RETURN_IF_ERROR(
      Check(set_math_(c.convolution_, math), "cudnnSetConvolutionMathType"));

  WEIR_ASSIGN_OR_RETURN(cudnnHandle_t handle, TakeHandle());
  std::array<cudnnConvolutionFwdAlgoPerf_t, CUDNN_CONVOLUTION_FWD_ALGO_COUNT>
      found;
  int count = 0;
  const absl::Status asked =
      Check(algorithms_(handle, c.in_, c.weights_, c.convolution_, c.out_,
                        static_cast<int>(found.size()), &count, found.data()),
            "cudnnGetConvolutionForwardAlgorithm_v7");
  ReturnHandle(handle);
  WEIR_RETURN_IF_ERROR(asked);
  for (int i = 0; i < count; ++i) {
    const cudnnConvolutionFwdAlgoPerf_t& candidate =
        found[static_cast<size_t>(i)];
    if (candidate.status != CUDNN_STATUS_SUCCESS ||
        candidate.determinism != CUDNN_DETERMINISTIC ||
        candidate.memory > kMaxWorkspace || !IsDirect(candidate.algo) ||
        candidate.mathType == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION ||
        (math == CUDNN_FMA_MATH && candidate.mathType != CUDNN_FMA_MATH &&
         candidate.mathType != CUDNN_DEFAULT_MATH)) {
      continue;
    }
    if (spec.exact_in_tf32) {
      // The workspace is for the candidate's own arithmetic.
      WEIR_RETURN_IF_ERROR(Check(set_math_(c.convolution_, candidate.mathType),
                                 "cudnnSetConvolutionMathType"));
    }
    c.algorithm_ = candidate.algo;
    c.scratch_bytes_ = candidate.memory;
    return std::shared_ptr<const Convolution>(std::move(result));
  }
  return absl::UnimplementedError(
      "cuDNN has no deterministic algorithm for this convolution");
}

Convolution::~Convolution() {
  if (in_ != nullptr) (void)library_->tensor_destroy_(in_);
  if (out_ != nullptr) (void)library_->tensor_destroy_(out_);
  if (weights_ != nullptr) (void)library_->filter_destroy_(weights_);
  if (convolution_ != nullptr) {
    (void)library_->convolution_destroy_(convolution_);
  }
}

absl::Status Convolution::Run(Stream& stream, const void* in,
                              const void* weights, void* out,
                              void* scratch) const {
  WEIR_ASSIGN_OR_RETURN(cudnnHandle_t handle, library_->TakeHandle());
  const float one = 1, zero = 0;
  const double one_double = 1, zero_double = 0;
  const void* alpha = is_double_ ? static_cast<const void*>(&one_double)
                                 : static_cast<const void*>(&one);
  const void* beta = is_double_ ? static_cast<const void*>(&zero_double)
                                : static_cast<const void*>(&zero);
  absl::Status status = library_->Check(
      library_->set_stream_(handle,
                            static_cast<cudaStream_t>(stream.native_handle())),
      "cudnnSetStream");
  if (status.ok()) {
    status = library_->Check(
        library_->forward_(handle, alpha, in_, in, weights_, weights,
                           convolution_, algorithm_, scratch, scratch_bytes_,
                           beta, out_, out),
        "cudnnConvolutionForward");
  }
  library_->ReturnHandle(handle);
  return status;
}

}  // namespace weir::cuda
