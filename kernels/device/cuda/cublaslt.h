// Matrix products by cuBLASLt. It takes 145 MiB when it is opened, so it is
// found at start and opened when the first program with such a product is
// compiled. A product is prepared once for its shapes and may then run on
// several streams at once. Thread-safe.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/library_file.h"
#include "kernels/device/stream.h"

namespace weir::cuda {

// Row-major D = alpha op(A) op(B) + beta D [+ bias], `batch` times. op(A) is
// m x k, op(B) is k x n; strides are elements between matrices of the batch.
// The bias is a row of n.
struct ProductSpec {
  cudaDataType_t type = CUDA_R_32F;  // or 64F, 16F, 16BF
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_d = 0;
  double alpha = 1, beta = 0;
  bool bias = false;
  // Every operand begins at a multiple of it, and so does every matrix of the
  // batch.
  uint32_t alignment = 16;
};

class CublasLt;

// Immutable; runs may overlap.
class MatrixProduct {
 public:
  // About what it takes: itself, and the library's descriptors of 64 to 256
  // bytes, which are plain data.
  static constexpr size_t kHeldBytes = 1024;

  ~MatrixProduct();
  size_t scratch_bytes() const { return scratch_bytes_; }
  absl::Status Run(Stream& stream, const void* a, const void* b, void* d,
                   const void* bias, void* scratch) const;

 private:
  friend class CublasLt;
  explicit MatrixProduct(const CublasLt* library) : library_(library) {}

  const CublasLt* const library_;
  ProductSpec spec_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layout_a_ = nullptr;
  cublasLtMatrixLayout_t layout_b_ = nullptr;
  cublasLtMatrixLayout_t layout_d_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_ = {};
  size_t scratch_bytes_ = 0;
};

class CublasLt {
 public:
  // FAILED_PRECONDITION if the library is missing or of another version.
  static absl::StatusOr<LibraryFile> Find();
  static absl::StatusOr<std::unique_ptr<CublasLt>> Open(
      const LibraryFile& file);
  ~CublasLt();

  // REQUIRES: the calling thread has set the device; sizes are positive.
  absl::StatusOr<std::shared_ptr<const MatrixProduct>> Prepare(
      const ProductSpec& spec) const;

 private:
  friend class MatrixProduct;
  CublasLt() = default;
  absl::Status Check(cublasStatus_t status, const char* what) const;

  cublasLtHandle_t handle_ = nullptr;
  decltype(&cublasLtCreate) create_ = nullptr;
  decltype(&cublasLtDestroy) destroy_ = nullptr;
  decltype(&cublasLtGetVersion) version_ = nullptr;
  decltype(&cublasLtGetStatusString) status_string_ = nullptr;
  decltype(&cublasLtMatmul) matmul_ = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create_ = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy_ = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_ = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create_ = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy_ = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set_ = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create_ = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy_ = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_ = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic_ = nullptr;
};

}  // namespace weir::cuda
