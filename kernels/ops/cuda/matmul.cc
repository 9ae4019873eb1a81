// MatMul and Gemm: cuBLASLt for floating types, a kernel of ours for integers,
// for batches that would take many calls, and for what is small: a process that
// has no other products does without the library, which takes 150 MB of the
// host's memory.
#include "kernels/ops/matmul.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cuda/cublaslt.h"
#include "kernels/ops/cuda/codegen.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/fused_matmul.h"
#include "kernels/ops/merged_loop.h"

namespace weir::cuda {
namespace {

constexpr int64_t kMaxBatch = 65535;  // of one strided call
// More calls than this would keep the launching thread: one launch of our own
// kernel does them all.
constexpr int64_t kMaxCalls = 64;
constexpr int64_t kMaxBlocks = int64_t{1} << 20;
// Up to here launching takes longer than the product: terms of a sum, and
// multiplications in all.
constexpr int64_t kSmallDepth = 256;
constexpr int64_t kSmallProduct = int64_t{1} << 20;

cudaDataType_t CudaType(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return CUDA_R_64F;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBfloat16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

const std::byte* At(const void* p, int64_t elements, size_t size) {
  return static_cast<const std::byte*>(p) +
         elements * static_cast<int64_t>(size);
}

// Products with the type of their elements.
struct BatchedProduct : ProductShape {
  BatchedProduct(ProductShape shape, DType type)
      : ProductShape(std::move(shape)), dtype(type) {
    if (!batch.empty()) return;
    batch = {1};
    strides_a = strides_b = {0};
  }

  DType dtype;
};

// -- Our kernel ---------------------------------------------------------------

// Sums in float what is narrower, without sign (wrapping) what is an integer.
std::string Accumulator(DType dtype) {
  if (dtype == DType::kDouble) return "double";
  if (IsFloating(dtype)) return "float";
  return SizeOf(dtype) == 8 ? "uint64_t" : "uint32_t";
}

bool IsSmall(const BatchedProduct& p) {
  return p.k <= kSmallDepth &&
         SaturatingMul(SaturatingMul(p.m, p.n),
                       SaturatingMul(p.k, p.count())) <= kSmallProduct;
}

// What a floating product is scaled by, and what is added to it.
struct Finish {
  double alpha = 1, beta = 1;
  Addend addend;

  bool any() const { return addend.present || alpha != 1; }
};

// One launch, whatever the batch.
absl::StatusOr<PlannedRun> PlanTiles(CudaDevice* device,
                                     const BatchedProduct& p,
                                     const Finish& finish = {}) {
  WEIR_ASSIGN_OR_RETURN(
      GeneratedKernel kernel,
      GeneratedKernel::Make(
          device, absl::StrCat(std::string(PreludeSource()),
                               Define("S", StorageType(p.dtype)),
                               Define("A", Accumulator(p.dtype)),
                               Define("ADDEND", finish.any() ? "1" : "0"),
                               std::string(MatMulSource()))));
  const int64_t row_tiles = (p.m + 15) / 16;
  const int64_t column_tiles = (p.n + 15) / 16;
  const int64_t blocks = row_tiles * column_tiles * p.count();
  Grid grid;
  grid.x = static_cast<uint64_t>(std::min(blocks, kMaxBlocks));
  return PlannedRun{
      [=](const RunArgs& run) {
        Words words;
        words.Add(run.inputs[0]).Add(run.inputs[1]).Add(run.outputs[0]);
        words.Add(p.m).Add(p.n).Add(p.k);
        words.Add(blocks).Add(row_tiles).Add(column_tiles);
        words.Add(uint64_t{p.batch.size()}).AddArray(p.batch, 8);
        words.AddArray(p.strides_a, 8).AddArray(p.strides_b, 8);
        words.Add(p.transpose_a ? 1 : 0).Add(p.transpose_b ? 1 : 0);
        words.Add(finish.alpha).Add(finish.beta);
        words.Add(finish.addend.present ? run.inputs[2] : nullptr);
        words.Add(finish.addend.row_stride).Add(finish.addend.column_stride);
        return kernel.Launch(run.stream, grid, words);
      },
      {kernel.hold()}};
}

// -- The library --------------------------------------------------------------

// How a batch is cut into calls: each runs over `chunk` matrices of one dim,
// the last along it over `last`.
struct Calls {
  size_t dim = 0;
  int64_t chunks = 1, chunk = 1, last = 1;
  int64_t others = 1;  // indices of the other dims

  int64_t count() const { return chunks * others; }
};

Calls CutBatch(const Dims& batch) {
  Calls calls;
  for (size_t d = 0; d < batch.size(); ++d) {
    if (batch[d] >= batch[calls.dim]) calls.dim = d;
  }
  const int64_t size = batch[calls.dim];
  calls.chunks = (size + kMaxBatch - 1) / kMaxBatch;
  calls.chunk = (size + calls.chunks - 1) / calls.chunks;
  calls.last = size - calls.chunk * (calls.chunks - 1);
  calls.others = SaturatingProduct(batch) / size;
  return calls;
}

struct LibraryProduct {
  BatchedProduct p;
  Calls calls;
  int64_t stride_d = 0;  // along calls.dim
  std::shared_ptr<const MatrixProduct> chunk, last;

  absl::Status Run(const RunArgs& run) const {
    for (int64_t i = 0; i < calls.others; ++i) {
      int64_t a = 0, b = 0, d = 0;
      int64_t rest = i, step = p.m * p.n;
      for (size_t dim = p.batch.size(); dim-- > 0; step *= p.batch[dim]) {
        if (dim == calls.dim) continue;
        const int64_t at = rest % p.batch[dim];
        rest /= p.batch[dim];
        a += at * p.strides_a[dim];
        b += at * p.strides_b[dim];
        d += at * step;
      }
      WEIR_RETURN_IF_ERROR(RunChunks(run, a, b, d));
    }
    return absl::OkStatus();
  }

  absl::Status RunChunks(const RunArgs& run, int64_t a, int64_t b,
                         int64_t d) const {
    const size_t size = SizeOf(p.dtype);
    for (int64_t c = 0; c < calls.chunks; ++c) {
      const MatrixProduct& product = c + 1 < calls.chunks ? *chunk : *last;
      const int64_t first = c * calls.chunk;
      WEIR_RETURN_IF_ERROR(product.Run(
          run.stream,
          At(run.inputs[0], a + first * p.strides_a[calls.dim], size),
          At(run.inputs[1], b + first * p.strides_b[calls.dim], size),
          const_cast<std::byte*>(
              At(run.outputs[0], d + first * stride_d, size)),
          nullptr, run.scratch));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<PlannedRun> PlanLibrary(CudaDevice* device,
                                       const BatchedProduct& p,
                                       const Calls& calls) {
  LibraryProduct made{p, calls, p.m * p.n, nullptr, nullptr};
  for (size_t d = calls.dim + 1; d < p.batch.size(); ++d) {
    made.stride_d *= p.batch[d];
  }
  ProductSpec spec;
  spec.type = CudaType(p.dtype);
  spec.transpose_a = p.transpose_a;
  spec.transpose_b = p.transpose_b;
  spec.m = p.m;
  spec.n = p.n;
  spec.k = p.k;
  spec.batch = calls.chunk;
  spec.stride_a = p.strides_a[calls.dim];
  spec.stride_b = p.strides_b[calls.dim];
  spec.stride_d = made.stride_d;
  if (p.count() > 1) {
    uint64_t strides = static_cast<uint64_t>(p.m * p.n);
    for (size_t d = 0; d < p.batch.size(); ++d) {
      strides |= static_cast<uint64_t>(p.strides_a[d] | p.strides_b[d]);
    }
    const uint64_t bytes = strides * SizeOf(p.dtype);
    while (bytes % spec.alignment != 0) spec.alignment /= 2;
  }
  WEIR_RETURN_IF_ERROR(device->Activate());
  WEIR_ASSIGN_OR_RETURN(CublasLt * cublaslt, device->cublaslt());
  WEIR_ASSIGN_OR_RETURN(made.chunk, cublaslt->Prepare(spec));
  made.last = made.chunk;
  if (calls.last != calls.chunk) {
    spec.batch = calls.last;
    WEIR_ASSIGN_OR_RETURN(made.last, cublaslt->Prepare(spec));
  }
  PlannedRun planned;
  planned.scratch_bytes =
      std::max(made.chunk->scratch_bytes(), made.last->scratch_bytes());
  planned.held_bytes =
      MatrixProduct::kHeldBytes * (made.last == made.chunk ? 1 : 2);
  planned.launches = static_cast<size_t>(calls.count());
  planned.run = [made = std::move(made)](const RunArgs& run) {
    return made.Run(run);
  };
  return planned;
}

absl::StatusOr<PlannedRun> PlanFloating(CudaDevice* device,
                                        const BatchedProduct& p) {
  const Calls calls = CutBatch(p.batch);
  if (IsSmall(p) || calls.count() > kMaxCalls) return PlanTiles(device, p);
  auto planned = PlanLibrary(device, p, calls);
  // Sizes that the library does not take.
  if (absl::IsUnimplemented(planned.status())) return PlanTiles(device, p);
  return planned;
}

absl::StatusOr<PlannedRun> PlanProduct(CudaDevice* device,
                                       const BatchedProduct& p,
                                       size_t output_bytes) {
  if (output_bytes == 0 || p.k == 0) {
    return PlannedRun{[output_bytes](const RunArgs& run) {
      return run.stream.Fill(run.outputs[0], 0, output_bytes);
    }};
  }
  return IsFloating(p.dtype) ? PlanFloating(device, p) : PlanTiles(device, p);
}

absl::StatusOr<PlanFunction> CompileMatMul(const NodeInfo&,
                                           CudaDevice* device) {
  return PlanFunction([device](
                          const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
    return PlanProduct(device,
                       {MatMulShapeOf(args.inputs[0].dims, args.inputs[1].dims),
                        args.inputs[0].dtype},
                       args.outputs[0].bytes);
  });
}

// -- Gemm ---------------------------------------------------------------------

// C in the shape of the output.
Operand AddendOperand(const PlanArgs& args) {
  return {args.inputs[2].dtype,
          BroadcastStrides(args.inputs[2].dims, args.outputs[0].dims), 0};
}

// `operand` times `factor`, in double, as the element type T.
std::string Scaled(double factor, const char* operand, Words* words) {
  if (factor == 1) return operand;
  words->Add(factor);
  return absl::StrCat("Convert<T>(NUMBER(", words->size() - 1,
                      ") * static_cast<double>(", operand, "))");
}

// The product first, which wraps; then alpha, beta and C.
absl::StatusOr<PlannedRun> PlanIntegerGemm(CudaDevice* device,
                                           const GemmAttributes& attributes,
                                           const BatchedProduct& p,
                                           const PlanArgs& args) {
  const TensorMeta& out = args.outputs[0];
  const bool has_c = AddendOf(args, attributes.beta).present;
  // The analyzer loses sight of a std::function that is moved.
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks)
  WEIR_ASSIGN_OR_RETURN(PlannedRun product, PlanProduct(device, p, out.bytes));
  if (!has_c && attributes.alpha == 1) return product;
  ElementwiseSpec spec;
  spec.expression =
      Scaled(static_cast<double>(attributes.alpha), "x0", &spec.words);
  spec.output = out.dtype;
  spec.dims = out.dims;
  spec.inputs = {{out.dtype, DenseStrides(out.dims), 0}};
  if (has_c) {
    spec.expression = absl::StrCat(
        "Add(", spec.expression, ", ",
        Scaled(static_cast<double>(attributes.beta), "x1", &spec.words), ")");
    spec.inputs.push_back(AddendOperand(args));
  }
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> finish,
                        ElementwiseLoop::Make(device, spec));
  PlannedRun planned;
  planned.scratch_bytes = product.scratch_bytes;
  planned.held_bytes = product.held_bytes;
  planned.shared_holds = product.shared_holds;
  planned.shared_holds.push_back(finish->hold());
  planned.launches = product.launches + 1;
  planned.run = [product = std::move(product.run), finish](const RunArgs& run) {
    WEIR_RETURN_IF_ERROR(product(run));
    const void* inputs[] = {run.outputs[0], InputOrNull(run, 2)};
    return finish->Run(run.stream, inputs, run.outputs[0], run.node_index);
  };
  return planned;
}

// A product of nothing is 0: what remains is beta times C.
absl::StatusOr<PlannedRun> PlanAddend(CudaDevice* device,
                                      const GemmAttributes& attributes,
                                      const BatchedProduct& p,
                                      const PlanArgs& args) {
  const TensorMeta& out = args.outputs[0];
  if (!AddendOf(args, attributes.beta).present) {
    return PlanProduct(device, p, out.bytes);
  }
  ElementwiseSpec spec;
  spec.expression = "T(NUMBER(0)) * x0";
  spec.words.Add(static_cast<double>(attributes.beta));
  spec.output = out.dtype;
  spec.dims = out.dims;
  spec.inputs = {AddendOperand(args)};
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const ElementwiseLoop> scale,
                        ElementwiseLoop::Make(device, spec));
  return PlannedRun{[scale](const RunArgs& run) {
                      return scale->Run(run.stream, run.inputs.subspan(2, 1),
                                        run.outputs[0], run.node_index);
                    },
                    {scale->hold()}};
}

absl::StatusOr<PlannedRun> PlanLibraryGemm(CudaDevice* device,
                                           const BatchedProduct& p,
                                           const Finish& finish,
                                           const PlanArgs& args) {
  const TensorMeta& out = args.outputs[0];
  ProductSpec spec;
  spec.type = CudaType(p.dtype);
  spec.transpose_a = p.transpose_a;
  spec.transpose_b = p.transpose_b;
  spec.m = p.m;
  spec.n = p.n;
  spec.k = p.k;
  spec.alpha = finish.alpha;
  // A row of C is added by the product itself, anything else is put into the
  // output first.
  spec.bias = finish.addend.present && finish.beta == 1 &&
              (finish.addend.row_stride == 0 || p.m == 1) &&
              finish.addend.elements == p.n;
  std::shared_ptr<const ElementwiseLoop> expand;
  if (finish.addend.present && !spec.bias) {
    spec.beta = finish.beta;
    ElementwiseSpec copy;
    copy.expression = "x0";
    copy.moves = true;
    copy.output = out.dtype;
    copy.dims = out.dims;
    copy.inputs = {AddendOperand(args)};
    WEIR_ASSIGN_OR_RETURN(expand, ElementwiseLoop::Make(device, copy));
  }
  WEIR_RETURN_IF_ERROR(device->Activate());
  WEIR_ASSIGN_OR_RETURN(CublasLt * cublaslt, device->cublaslt());
  WEIR_ASSIGN_OR_RETURN(std::shared_ptr<const MatrixProduct> product,
                        cublaslt->Prepare(spec));
  PlannedRun planned;
  planned.scratch_bytes = product->scratch_bytes();
  planned.held_bytes = MatrixProduct::kHeldBytes;
  if (expand != nullptr) planned.shared_holds = {expand->hold()};
  planned.launches = expand == nullptr ? 1 : 2;
  planned.run = [product, expand](const RunArgs& run) {
    if (expand != nullptr) {
      WEIR_RETURN_IF_ERROR(expand->Run(run.stream, run.inputs.subspan(2, 1),
                                       run.outputs[0], run.node_index));
    }
    return product->Run(run.stream, run.inputs[0], run.inputs[1],
                        run.outputs[0], InputOrNull(run, 2), run.scratch);
  };
  return planned;
}

absl::StatusOr<PlannedRun> PlanFloatingGemm(CudaDevice* device,
                                            const GemmAttributes& attributes,
                                            const BatchedProduct& p,
                                            const PlanArgs& args) {
  Finish finish;
  finish.alpha = attributes.alpha;
  finish.beta = attributes.beta;
  finish.addend = AddendOf(args, attributes.beta);
  if (IsSmall(p)) return PlanTiles(device, p, finish);
  auto planned = PlanLibraryGemm(device, p, finish, args);
  // Sizes that the library does not take.
  if (absl::IsUnimplemented(planned.status())) {
    return PlanTiles(device, p, finish);
  }
  return planned;
}

absl::StatusOr<PlanFunction> CompileGemm(const NodeInfo& node,
                                         CudaDevice* device) {
  const GemmAttributes attributes = GemmAttributesOf(node);
  return PlanFunction(
      [attributes, device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const TensorMeta& out = args.outputs[0];
        BatchedProduct p(
            GemmShapeOf(attributes, args.inputs[0].dims, args.inputs[1].dims),
            args.inputs[0].dtype);
        // As in BLAS, A and B are not read then.
        if (attributes.alpha == 0 && IsFloating(p.dtype)) p.k = 0;
        if (out.bytes == 0) return PlanProduct(device, p, 0);
        if (!IsFloating(p.dtype)) {
          return PlanIntegerGemm(device, attributes, p, args);
        }
        return p.k == 0 ? PlanAddend(device, attributes, p, args)
                        : PlanFloatingGemm(device, attributes, p, args);
      });
}

// One matrix on the right makes one tall product of any batch, whose row is
// added as Gemm's.
absl::StatusOr<PlanFunction> CompileFusedMatMul(const NodeInfo&,
                                                CudaDevice* device) {
  return PlanFunction(
      [device](const PlanArgs& args) -> absl::StatusOr<PlannedRun> {
        const GemmAttributes attributes = {1, 1, false, false};
        const BatchedProduct p(
            MatMulShapeOf(args.inputs[0].dims, args.inputs[1].dims),
            args.inputs[0].dtype);
        if (args.outputs[0].bytes == 0) return PlanProduct(device, p, 0);
        return p.k == 0 ? PlanAddend(device, attributes, p, args)
                        : PlanFloatingGemm(device, attributes, p, args);
      });
}

}  // namespace

absl::Status RegisterMatMul(OpRegistry& registry) {
  const KernelTraits traits = {.scratch_bytes = NoScratch};
  WEIR_RETURN_IF_ERROR(
      RegisterNode(registry, "", "MatMul", CompileMatMul, traits));
  WEIR_RETURN_IF_ERROR(RegisterNode(registry, kFusedMatMulDomain,
                                    kFusedMatMulName, CompileFusedMatMul,
                                    traits));
  return RegisterNode(registry, "", "Gemm", CompileGemm, traits);
}

}  // namespace weir::cuda
