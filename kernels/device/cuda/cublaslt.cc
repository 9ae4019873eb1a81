#include "kernels/device/cuda/cublaslt.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cuda/cuda_status.h"
#include "kernels/device/cuda/dynamic_library.h"
#include "kernels/device/device.h"

namespace weir::cuda {
namespace {

constexpr char kSoname[] = "libcublasLt.so.13";
constexpr size_t kMaxWorkspace = size_t{32} << 20;

}  // namespace

absl::StatusOr<LibraryFile> CublasLt::Find() {
  absl::StatusOr<LibraryFile> file = FindLibrary(kSoname);
  if (file.ok()) return file;
  return absl::FailedPreconditionError(
      absl::StrCat("cuBLASLt 13 is needed and missing: ",
                   absl::string_view(file.status().message())));
}

absl::StatusOr<std::unique_ptr<CublasLt>> CublasLt::Open(
    const LibraryFile& file) {
  absl::StatusOr<DynamicLibrary> library = DynamicLibrary::Open(file);
  WEIR_RETURN_IF_ERROR(library.status());
  std::unique_ptr<CublasLt> lt(new CublasLt());
  const DynamicLibrary& l = *library;
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtCreate", &lt->create_));
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtDestroy", &lt->destroy_));
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtGetVersion", &lt->version_));
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtGetStatusString", &lt->status_string_));
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtMatmul", &lt->matmul_));
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtMatmulDescCreate", &lt->desc_create_));
  WEIR_RETURN_IF_ERROR(l.Load("cublasLtMatmulDescDestroy", &lt->desc_destroy_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatmulDescSetAttribute", &lt->desc_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatrixLayoutCreate", &lt->layout_create_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatrixLayoutDestroy", &lt->layout_destroy_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatrixLayoutSetAttribute", &lt->layout_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatmulPreferenceCreate", &lt->preference_create_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatmulPreferenceDestroy", &lt->preference_destroy_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatmulPreferenceSetAttribute", &lt->preference_set_));
  WEIR_RETURN_IF_ERROR(
      l.Load("cublasLtMatmulAlgoGetHeuristic", &lt->heuristic_));
  if (lt->version_() / 10000 != CUBLAS_VER_MAJOR) {
    return absl::FailedPreconditionError(
        absl::StrCat(l.path(), " is cuBLASLt ", lt->version_() / 10000, ".",
                     lt->version_() / 100 % 100, "; this build needs version ",
                     CUBLAS_VER_MAJOR));
  }
  WEIR_RETURN_IF_ERROR(lt->Check(lt->create_(&lt->handle_), "cublasLtCreate"));
  return lt;
}

CublasLt::~CublasLt() {
  if (handle_ != nullptr) (void)destroy_(handle_);
}

absl::Status CublasLt::Check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string text = absl::StrCat(what, ": ", status_string_(status));
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    return ShortOfDeviceMemory(absl::ResourceExhaustedError(text));
  }
  // A kernel that could not be launched: the device knows whether it is lost.
  const cudaError_t error = cudaPeekAtLastError();
  if (IsSticky(error)) return CudaStatus(error, what);
  return absl::InternalError(text);
}

absl::StatusOr<std::shared_ptr<const MatrixProduct>> CublasLt::Prepare(
    const ProductSpec& spec) const {
  ExpectMayWait("CublasLt::Prepare");
  std::shared_ptr<MatrixProduct> product(new MatrixProduct(this));
  MatrixProduct& p = *product;
  p.spec_ = spec;
  const cudaDataType_t type = spec.type;
  const bool is_double = type == CUDA_R_64F;
  // Strict: float products in float, never TF32; halves accumulate in float.
  WEIR_RETURN_IF_ERROR(
      Check(desc_create_(&p.operation_,
                         is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                         is_double ? CUDA_R_64F : CUDA_R_32F),
            "cublasLtMatmulDescCreate"));
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return Check(desc_set_(p.operation_, attribute, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  };
  // cuBLASLt is column-major: what it calls A is our B, and its result is the
  // transpose of ours, which lies in memory as ours does.
  WEIR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSA,
                           spec.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N));
  WEIR_RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_TRANSB,
                           spec.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N));
  if (spec.bias) {
    WEIR_RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS));
  }
  auto layout = [&](cublasLtMatrixLayout_t* result, int64_t rows,
                    int64_t columns, int64_t stride) -> absl::Status {
    WEIR_RETURN_IF_ERROR(
        Check(layout_create_(result, type, static_cast<uint64_t>(rows),
                             static_cast<uint64_t>(columns), rows),
              "cublasLtMatrixLayoutCreate"));
    if (spec.batch == 1) return absl::OkStatus();
    const int32_t batch = static_cast<int32_t>(spec.batch);
    WEIR_RETURN_IF_ERROR(
        Check(layout_set_(*result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                          sizeof(batch)),
              "cublasLtMatrixLayoutSetAttribute"));
    return Check(
        layout_set_(*result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    &stride, sizeof(stride)),
        "cublasLtMatrixLayoutSetAttribute");
  };
  WEIR_RETURN_IF_ERROR(
      spec.transpose_b ? layout(&p.layout_b_, spec.k, spec.n, spec.stride_b)
                       : layout(&p.layout_b_, spec.n, spec.k, spec.stride_b));
  WEIR_RETURN_IF_ERROR(
      spec.transpose_a ? layout(&p.layout_a_, spec.m, spec.k, spec.stride_a)
                       : layout(&p.layout_a_, spec.k, spec.m, spec.stride_a));
  WEIR_RETURN_IF_ERROR(layout(&p.layout_d_, spec.n, spec.m, spec.stride_d));

  cublasLtMatmulPreference_t preference = nullptr;
  WEIR_RETURN_IF_ERROR(
      Check(preference_create_(&preference), "cublasLtMatmulPreferenceCreate"));
  auto choose = [&]() -> absl::Status {
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute,
                      auto value) {
      return Check(
          preference_set_(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    WEIR_RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                uint64_t{kMaxWorkspace}));
    // Partial sums are added in the compute type and in a fixed order.
    WEIR_RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
               uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
    for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                           CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      WEIR_RETURN_IF_ERROR(prefer(attribute, spec.alignment));
    }
    cublasLtMatmulHeuristicResult_t result = {};
    int found = 0;
    const cublasStatus_t status =
        heuristic_(handle_, p.operation_, p.layout_b_, p.layout_a_, p.layout_d_,
                   p.layout_d_, preference, 1, &result, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || found == 0) {
      return absl::UnimplementedError(
          absl::StrCat("cuBLASLt has no product of ", spec.m, " x ", spec.k,
                       " and ", spec.k, " x ", spec.n, " matrices"));
    }
    WEIR_RETURN_IF_ERROR(Check(status, "cublasLtMatmulAlgoGetHeuristic"));
    p.algorithm_ = result.algo;
    p.scratch_bytes_ = result.workspaceSize;
    return absl::OkStatus();
  };
  const absl::Status chosen = choose();
  const absl::Status destroyed =
      Check(preference_destroy_(preference), "cublasLtMatmulPreferenceDestroy");
  WEIR_RETURN_IF_ERROR(chosen);
  WEIR_RETURN_IF_ERROR(destroyed);
  return std::shared_ptr<const MatrixProduct>(std::move(product));
}

MatrixProduct::~MatrixProduct() {
  if (operation_ != nullptr) (void)library_->desc_destroy_(operation_);
  for (cublasLtMatrixLayout_t layout : {layout_a_, layout_b_, layout_d_}) {
    if (layout != nullptr) (void)library_->layout_destroy_(layout);
  }
}

absl::Status MatrixProduct::Run(Stream& stream, const void* a, const void* b,
                                void* d, const void* bias,
                                void* scratch) const {
  // The descriptor is plain data; a run with a bias has its own.
  cublasLtMatmulDescOpaque_t copy;
  cublasLtMatmulDesc_t operation = operation_;
  if (spec_.bias) {
    copy = *operation_;
    operation = &copy;
    WEIR_RETURN_IF_ERROR(library_->Check(
        library_->desc_set_(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                            sizeof(bias)),
        "cublasLtMatmulDescSetAttribute"));
  }
  const float alpha_float = static_cast<float>(spec_.alpha);
  const float beta_float = static_cast<float>(spec_.beta);
  const bool is_double = spec_.type == CUDA_R_64F;
  const void* alpha = is_double ? static_cast<const void*>(&spec_.alpha)
                                : static_cast<const void*>(&alpha_float);
  const void* beta = is_double ? static_cast<const void*>(&spec_.beta)
                               : static_cast<const void*>(&beta_float);
  return library_->Check(
      library_->matmul_(library_->handle_, operation, alpha, b, layout_b_, a,
                        layout_a_, beta, d, layout_d_, d, layout_d_,
                        &algorithm_, scratch, scratch_bytes_,
                        static_cast<cudaStream_t>(stream.native_handle())),
      "cublasLtMatmul");
}

}  // namespace weir::cuda
