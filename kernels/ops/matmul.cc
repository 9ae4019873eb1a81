#include "kernels/ops/matmul.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/fused_matmul.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/matrix_product.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

constexpr TypeSet kMatrixTypes =
    kFloatTypes |
    TypeSet{DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64};

// -- Shapes -------------------------------------------------------------------

absl::Status InferMatMul(InferContext& context) {
  const NodeInfo& node = context.node();
  const SymbolicShape& a = context.input_shape(0);
  const SymbolicShape& b = context.input_shape(1);
  SymbolicShape shape;
  if (a.has_value() && b.has_value()) {
    if (a->empty() || b->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("A ", ShapeString(a), " and B ", ShapeString(b),
                       " must have at least one axis"));
    }
    const bool vector_a = a->size() == 1;
    const bool vector_b = b->size() == 1;
    const Dim inner_a = a->back();
    const Dim inner_b = vector_b ? (*b)[0] : (*b)[b->size() - 2];
    if (inner_a.SurelyDiffers(inner_b)) {
      return absl::InvalidArgumentError(
          absl::StrCat("A ", ShapeString(a), " and B ", ShapeString(b),
                       " have different inner sizes"));
    }
    const absl::Span<const Dim> batch_a =
        vector_a ? absl::Span<const Dim>()
                 : absl::MakeConstSpan(*a).subspan(0, a->size() - 2);
    const absl::Span<const Dim> batch_b =
        vector_b ? absl::Span<const Dim>()
                 : absl::MakeConstSpan(*b).subspan(0, b->size() - 2);
    WEIR_ASSIGN_OR_RETURN(shape, BroadcastShapes(batch_a, batch_b));
    if (!vector_a) shape->push_back((*a)[a->size() - 2]);
    if (!vector_b) shape->push_back(b->back());
  }
  context.SetOutput(0, node.input_types[0], std::move(shape));
  return absl::OkStatus();
}

// Symbols have told that the row is as long as the others: sizes may not.
absl::Status InferFusedMatMul(InferContext& context) {
  WEIR_RETURN_IF_ERROR(InferMatMul(context));
  const SymbolicShape& b = context.input_shape(1);
  const SymbolicShape& row = context.input_shape(kFusedMatMulRow);
  if (b.has_value() && row.has_value() &&
      (row->size() != 1 || row->front().SurelyDiffers(b->back()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("B ", ShapeString(b), " and the row ", ShapeString(row),
                     " do not fit together"));
  }
  return absl::OkStatus();
}

absl::Status InferGemm(InferContext& context) {
  const NodeInfo& node = context.node();
  const SymbolicShape& a = context.input_shape(0);
  const SymbolicShape& b = context.input_shape(1);
  WEIR_RETURN_IF_ERROR(CheckRank(context, 0, 2));
  WEIR_RETURN_IF_ERROR(CheckRank(context, 1, 2));
  const GemmAttributes attributes = GemmAttributesOf(node);
  const size_t trans_a = attributes.transpose_a ? 1 : 0;
  const size_t trans_b = attributes.transpose_b ? 1 : 0;
  SymbolicDims shape(2);
  if (a.has_value()) shape[0] = (*a)[trans_a];
  if (b.has_value()) shape[1] = (*b)[1 - trans_b];
  if (a.has_value() && b.has_value() &&
      (*a)[1 - trans_a].SurelyDiffers((*b)[trans_b])) {
    return absl::InvalidArgumentError(
        absl::StrCat("A ", ShapeString(a), " and B ", ShapeString(b),
                     " have different inner sizes (transA ", trans_a,
                     ", transB ", trans_b, ")"));
  }
  if (node.HasInput(2) && context.input_shape(2).has_value()) {
    const SymbolicDims& c = *context.input_shape(2);
    bool fits = c.size() <= 2;
    for (size_t i = 0; fits && i < c.size(); ++i) {
      const Dim size = c[c.size() - 1 - i];
      fits = size == Dim(1) || !size.SurelyDiffers(shape[1 - i]);
    }
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "C ", ShapeString(c), " does not broadcast to ", ShapeString(shape)));
    }
  }
  context.SetOutput(0, node.input_types[0], std::move(shape));
  return absl::OkStatus();
}

// -- Cost ---------------------------------------------------------------------

// Outputs of m x n matrices for which sums are computed side by side: whole
// tiles, however little of them is asked for. A few tiles are as little as a
// few outputs are.
int64_t SumsInTiles(int64_t outputs, int64_t m, int64_t n) {
  constexpr int64_t kTile = 16;
  if (outputs == 0) return 0;
  const auto whole = [](int64_t size) {
    return SaturatingMul(size / kTile + (size % kTile == 0 ? 0 : 1), kTile);
  };
  const int64_t sums =
      SaturatingMul(SaturatingMul(whole(m), whole(n)), outputs / (m * n));
  if (outputs >= kElementsSideBySide) return sums;
  return ((sums - 1) / kElementsSideBySide + 1) * outputs;
}

// About 50 ns, for each of several products.
constexpr int64_t kMatrixOperations = 500;

// Of sums of `k` products, for matrices of m x n. The CPU takes as long for
// each element of operands and result as to move one, and widens half types.
NodeCost ProductCost(const NodeInfo& node, Pace pace, const PlanArgs& args,
                     int64_t m, int64_t n, int64_t k) {
  NodeCost cost = LinearCost(node, pace, args);
  const DType dtype = args.inputs[0].dtype;
  const bool widens = ComputeType(dtype) != dtype;
  const bool in_turn = pace == Pace::kInTurn;
  if (in_turn) {
    cost.operations = SaturatingMul(
        cost.operations, kElementCpuWeight + (widens ? kHalfTypeCpuWeight : 0));
  }
  const int64_t outputs = args.outputs[0].elements;
  cost.operations = SaturatingAdd(
      cost.operations,
      SaturatingMul(in_turn ? outputs : SumsInTiles(outputs, m, n), k));
  const int64_t matrices = outputs == 0 ? 0 : outputs / m / n;
  if (matrices > 1) AddInTurn(pace, args, matrices, kMatrixOperations, cost);
  if (!widens) return cost;
  for (const absl::Span<const TensorMeta> metas : {args.inputs, args.outputs}) {
    for (const TensorMeta& meta : metas) {
      cost.scratch_bytes = SaturatingAdd(
          cost.scratch_bytes, static_cast<int64_t>(FloatBytes(meta.elements)));
    }
  }
  return cost;
}

NodeCost MatMulCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  const ProductShape p =
      MatMulShapeOf(args.inputs[0].dims, args.inputs[1].dims);
  return ProductCost(node, pace, args, p.m, p.n, p.k);
}

NodeCost GemmCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  const ProductShape p = GemmShapeOf(GemmAttributesOf(node),
                                     args.inputs[0].dims, args.inputs[1].dims);
  return ProductCost(node, pace, args, p.m, p.n, p.k);
}

// -- Kernels ------------------------------------------------------------------

// MatMul, and weir.FusedMatMul, which adds a row.
class MatMulKernel : public Kernel {
 public:
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return PlanProduct(args,
                       MatMulShapeOf(args.inputs[0].dims, args.inputs[1].dims),
                       1.0f, 1.0f, AddendOf(args, 1.0f));
  }
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeMatMulKernel(const NodeInfo&,
                                                               Device&) {
  return std::make_unique<const MatMulKernel>();
}

class GemmKernel : public Kernel {
 public:
  explicit GemmKernel(const NodeInfo& node)
      : attributes_(GemmAttributesOf(node)) {}

  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    return PlanProduct(
        args,
        GemmShapeOf(attributes_, args.inputs[0].dims, args.inputs[1].dims),
        attributes_.alpha, attributes_.beta, AddendOf(args, attributes_.beta));
  }

 private:
  const GemmAttributes attributes_;
};

}  // namespace

GemmAttributes GemmAttributesOf(const NodeInfo& node) {
  return {node.attributes.Float("alpha", 1), node.attributes.Float("beta", 1),
          node.attributes.Int("transA", 0) != 0,
          node.attributes.Int("transB", 0) != 0};
}

ProductShape MatMulShapeOf(const Dims& a, const Dims& b) {
  Dims left = a, right = b;
  if (left.size() == 1) left.insert(left.begin(), 1);
  if (right.size() == 1) right.push_back(1);
  ProductShape p;
  p.m = left[left.size() - 2];
  p.k = left.back();
  p.n = right.back();
  const size_t rank = std::max(left.size(), right.size()) - 2;
  // The axes of a batch, then those of a matrix.
  Dims out(rank + 2, 1);
  for (const Dims* dims : {&left, &right}) {
    for (size_t j = 3; j <= dims->size(); ++j) {
      const int64_t dim = (*dims)[dims->size() - j];
      if (dim != 1) out[rank + 2 - j] = dim;
    }
  }
  const Dims strides_a = BroadcastStrides(left, out);
  const Dims strides_b = BroadcastStrides(right, out);
  MergedLoop batch(2);
  for (size_t d = 0; d < rank; ++d) {
    batch.Append(out[d], {strides_a[d], strides_b[d]});
  }
  if (batch.dims.size() == 1 && batch.strides[1][0] == 0 &&
      batch.strides[0][0] == SaturatingMul(p.m, p.k)) {
    p.m = SaturatingMul(p.m, batch.dims[0]);
    return p;
  }
  p.batch = std::move(batch.dims);
  p.strides_a = std::move(batch.strides[0]);
  p.strides_b = std::move(batch.strides[1]);
  return p;
}

ProductShape GemmShapeOf(const GemmAttributes& attributes, const Dims& a,
                         const Dims& b) {
  ProductShape p;
  p.transpose_a = attributes.transpose_a;
  p.transpose_b = attributes.transpose_b;
  p.m = a[p.transpose_a ? 1 : 0];
  p.k = a[p.transpose_a ? 0 : 1];
  p.n = b[p.transpose_b ? 0 : 1];
  return p;
}

Addend AddendOf(const PlanArgs& args, float beta) {
  Addend addend;
  if (args.inputs.size() <= 2 || args.inputs[2].dtype == DType::kInvalid ||
      beta == 0) {
    return addend;
  }
  const Dims strides =
      BroadcastStrides(args.inputs[2].dims, args.outputs[0].dims);
  addend.present = true;
  addend.elements = args.inputs[2].elements;
  if (!strides.empty()) addend.column_stride = strides.back();
  // A row alone is added to what has more axes than a matrix.
  if (strides.size() == 2) addend.row_stride = strides[0];
  return addend;
}

absl::Status Register_onnx_MatMul(OpRegistry& registry) {
  OpDef def;
  def.name = "MatMul";
  def.doc =
      "Matrix product as numpy.matmul: leading axes are broadcast, a 1-D "
      "operand is a row or column. Integers wrap; half types are computed in "
      "float.";
  def.inputs = {{.name = "A", .types = kMatrixTypes},
                {.name = "B", .types = kMatrixTypes}};
  def.outputs = {{.name = "Y"}};
  def.infer = InferMatMul;
  def.cost = MatMulCost;
  def.cpu_weight = kProductCpuWeight;
  return registry.Register(std::move(def), MakeMatMulKernel);
}

absl::Status Register_weir_FusedMatMul(OpRegistry& registry) {
  OpDef def;
  def.domain = kFusedMatMulDomain;
  def.name = kFusedMatMulName;
  def.doc = "MatMul with one matrix on the right, and a row added to each row.";
  def.internal = true;
  def.inputs = {{.name = "A", .types = kFloatTypes},
                {.name = "B", .types = kFloatTypes},
                {.name = "C", .types = kFloatTypes}};
  def.outputs = {{.name = "Y"}};
  def.infer = InferFusedMatMul;
  def.cost = MatMulCost;
  def.cpu_weight = kProductCpuWeight;
  // In half types each of the nodes would round by itself.
  return registry.Register(std::move(def), MakeMatMulKernel,
                           {.takes = [](const NodeInfo& node) {
                             return node.input_types[0] == DType::kFloat;
                           }});
}

absl::Status Register_onnx_Gemm(OpRegistry& registry) {
  OpDef def;
  def.name = "Gemm";
  def.doc =
      "alpha * op(A) * op(B) + beta * C for 2-D A and B, with C broadcast to "
      "the product. Integers wrap; half types are computed in float.";
  def.inputs = {{.name = "A", .types = kMatrixTypes},
                {.name = "B", .types = kMatrixTypes},
                {.name = "C", .types = kMatrixTypes, .optional = true}};
  def.outputs = {{.name = "Y"}};
  def.attributes = {
      {"alpha", AttributeType::kFloat, false, "Default 1."},
      {"beta", AttributeType::kFloat, false, "Default 1; 0 ignores C."},
      {"transA", AttributeType::kInt, false, "1 transposes A; default 0."},
      {"transB", AttributeType::kInt, false, "1 transposes B; default 0."}};
  def.infer = InferGemm;
  def.cost = GemmCost;
  def.cpu_weight = kProductCpuWeight;
  return registry.Register(
      std::move(def),
      [](const NodeInfo& node,
         Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
        return std::make_unique<const GemmKernel>(node);
      });
}

}  // namespace weir
