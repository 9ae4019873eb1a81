#include "kernels/ops/normalization.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/alignment.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/merged_loop.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/type_dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/normalization.cc"
#include <hwy/foreach_target.h>
// Keep this order: each target includes this file again.
#include <hwy/highway.h>
// After highway.h.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace weir {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of floats, dense. All tails are computed in one lane by the same
// operations, so that a row's result depends on nothing but the row. Where a
// question was answered that the operator is given up, a row's result is
// anything.

// Within a row that is over at once.
struct NoQuestion {
  bool NextPart(int64_t n, int64_t* end) const {
    if (*end >= n) return false;
    *end = n;
    return true;
  }
  bool given_up() const { return false; }
};

// NaN if there is one, which a vector's Max may drop.
template <typename Question>
float LargestOf(const float* x, int64_t n, Question& question) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  float largest = -std::numeric_limits<float>::infinity();
  bool nan = false;
  int64_t i = 0;
  if (n >= lanes) {
    auto most = hn::LoadU(d, x);
    auto nans = hn::IsNaN(most);
    i = lanes;
    for (int64_t end = 0; question.NextPart(n, &end);) {
      for (; i + lanes <= end; i += lanes) {
        const auto v = hn::LoadU(d, x + i);
        most = hn::Max(most, v);
        nans = hn::Or(nans, hn::IsNaN(v));
      }
    }
    if (question.given_up()) return 0;
    largest = hn::GetLane(hn::MaxOfLanes(d, most));
    nan = !hn::AllFalse(d, nans);
  }
  for (; i < n; ++i) {
    largest = std::max(largest, x[i]);
    nan |= x[i] != x[i];
  }
  return nan ? std::numeric_limits<float>::quiet_NaN() : largest;
}

template <typename Question>
void SoftmaxInParts(const float* x, int64_t n, float* y, Question& question) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float largest = LargestOf(x, n, question);
  if (question.given_up()) return;
  // The differences to it are NaN somewhere, and so is their sum; Exp would
  // make them 0.
  if (!std::isfinite(largest)) {
    std::fill_n(y, n, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  const auto offset = hn::Set(d, largest);
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (int64_t end = 0; question.NextPart(n, &end);) {
    for (; i + lanes <= end; i += lanes) {
      const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, x + i), offset));
      hn::StoreU(e, d, y + i);
      sums = hn::Add(sums, e);
    }
  }
  if (question.given_up()) return;
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) {
    const auto e = hn::Exp(one, hn::Set(one, x[i] - largest));
    hn::StoreU(e, one, y + i);
    sum += y[i];
  }
  const float factor = 1.0f / sum;
  const auto factors = hn::Set(d, factor);
  i = 0;
  for (int64_t end = 0; question.NextPart(n, &end);) {
    for (; i + lanes <= end; i += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, y + i), factors), d, y + i);
    }
  }
  if (question.given_up()) return;
  for (; i < n; ++i) y[i] *= factor;
}

void SoftmaxOfRow(const float* x, int64_t n, float* y,
                  GiveUpQuestion& question) {
  constexpr int64_t kShort = 4096;
  if (n > kShort) return SoftmaxInParts(x, n, y, question);
  NoQuestion none;
  if (!question.Asked(n)) SoftmaxInParts(x, n, y, none);
}

// Mean and mean square deviation, in two passes.
void MomentsOfRow(const float* x, int64_t n, float* mean, float* variance,
                  GiveUpQuestion& question) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto count = static_cast<float>(n);
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (int64_t end = 0; question.NextPart(n, &end);) {
    for (; i + lanes <= end; i += lanes) {
      sums = hn::Add(sums, hn::LoadU(d, x + i));
    }
  }
  if (question.given_up()) return;
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += x[i];
  *mean = sum / count;
  const auto center = hn::Set(d, *mean);
  auto squares = hn::Zero(d);
  i = 0;
  for (int64_t end = 0; question.NextPart(n, &end);) {
    for (; i + lanes <= end; i += lanes) {
      const auto off = hn::Sub(hn::LoadU(d, x + i), center);
      squares = hn::MulAdd(off, off, squares);
    }
  }
  if (question.given_up()) return;
  float square = hn::GetLane(hn::SumOfLanes(d, squares));
  for (; i < n; ++i) square += (x[i] - *mean) * (x[i] - *mean);
  *variance = square / count;
}

// y = (x - mean) * factor * scale + bias; `bias` may be null.
void ScaleRow(const float* x, int64_t n, float mean, float factor,
              const float* scale, const float* bias, float* y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto step = [&](auto tag, int64_t i) {
    const auto off = hn::Sub(hn::LoadU(tag, x + i), hn::Set(tag, mean));
    const auto unit = hn::Mul(off, hn::Set(tag, factor));
    const auto scaled = hn::LoadU(tag, scale + i);
    hn::StoreU(bias == nullptr
                   ? hn::Mul(unit, scaled)
                   : hn::MulAdd(unit, scaled, hn::LoadU(tag, bias + i)),
               tag, y + i);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) step(d, i);
  for (; i < n; ++i) step(one, i);
}

// y = (x - mean) * factor + bias.
void AffineRow(const float* x, int64_t n, float mean, float factor, float bias,
               float* y) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto step = [&](auto tag, int64_t i) {
    const auto off = hn::Sub(hn::LoadU(tag, x + i), hn::Set(tag, mean));
    hn::StoreU(hn::MulAdd(off, hn::Set(tag, factor), hn::Set(tag, bias)), tag,
               y + i);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) step(d, i);
  for (; i < n; ++i) step(one, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir {
namespace {

HWY_EXPORT(SoftmaxOfRow);
HWY_EXPORT(MomentsOfRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(AffineRow);

using FloatingTypeList = Join<FloatTypeList, HalfTypeList>;

// What a type is computed in.
template <typename T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

constexpr int64_t kGrainElements = 8192;

// Rows that cannot be computed where they lie have a row of scratch memory for
// each piece of the work.
constexpr int64_t kMaxPieces = 64;

template <typename C>
size_t RowBytes(int64_t length) {
  return AlignUp(static_cast<size_t>(length) * sizeof(C), kVectorAlignment);
}

// Whether rows of `dtype` are computed in another type.
bool Widens(DType dtype) { return ComputeType(dtype) != dtype; }

// Calls fn(first row, past the last, scratch row) for each piece of `rows`.
template <typename C, typename Fn>
void ForEachPiece(CpuTeam* team, int64_t rows, int64_t length, void* scratch,
                  const Fn& fn) {
  const int64_t pieces = std::min(rows, kMaxPieces);
  ParallelFor(team, pieces, [&](int64_t i) {
    fn(rows * i / pieces, rows * (i + 1) / pieces,
       reinterpret_cast<C*>(static_cast<std::byte*>(scratch) +
                            static_cast<size_t>(i) * RowBytes<C>(length)));
  });
}

// The library's exp takes as long as so many elements moved, and so may one
// that is far from its neighbors.
constexpr int64_t kExpWeight = 8, kFarWeight = 8;

// Calls fn(i) for each i in [0, n), or fewer if it was given up.
template <typename Fn>
void ForEach(int64_t n, int64_t weight, GiveUpQuestion& question,
             const Fn& fn) {
  int64_t i = 0;
  for (int64_t end = 0; question.NextPart(n, &end, weight);) {
    for (; i < end; ++i) fn(i);
  }
}

// What ForEachPiece takes, in `dtype`'s compute type.
size_t PieceBytes(DType dtype, int64_t rows, int64_t length) {
  const size_t row = dtype == DType::kDouble ? RowBytes<double>(length)
                                             : RowBytes<float>(length);
  return static_cast<size_t>(std::min(rows, kMaxPieces)) * row;
}

int64_t RowGrain(int64_t row) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(row, 1));
}

// -- Softmax ------------------------------------------------------------------

// Before opset 13 the axes from `axis` on are one.
bool Flattens(const NodeInfo& node) { return node.opset < 13; }

absl::StatusOr<int> SoftmaxAxis(const NodeInfo& node, int rank) {
  const int64_t axis = node.attributes.Int("axis", Flattens(node) ? 1 : -1);
  if (Flattens(node) && axis == rank) return rank;
  return NormalizeAxis(axis, rank);
}

absl::Status InferSoftmax(InferContext& context) {
  const SymbolicShape& x = context.input_shape(0);
  if (x.has_value()) {
    WEIR_RETURN_IF_ERROR(
        SoftmaxAxis(context.node(), static_cast<int>(x->size())).status());
  }
  return InferSameAsInput(context);
}

template <typename C>
void SoftmaxOfValues(const C* x, int64_t n, C* y, GiveUpQuestion& question) {
  C largest = -std::numeric_limits<C>::infinity();
  ForEach(n, 1, question,
          [&](int64_t i) { largest = std::max(largest, x[i]); });
  C sum = 0;
  ForEach(n, kExpWeight, question,
          [&](int64_t i) { sum += y[i] = std::exp(x[i] - largest); });
  ForEach(n, 1, question, [&](int64_t i) { y[i] /= sum; });
}

template <>
void SoftmaxOfValues(const float* x, int64_t n, float* y,
                     GiveUpQuestion& question) {
  HWY_DYNAMIC_DISPATCH(SoftmaxOfRow)(x, n, y, question);
}

template <typename T>
void RunSoftmax(const SoftmaxShape& shape, const RunArgs& run) {
  using C = Compute<T>;
  const auto* x = static_cast<const T*>(run.inputs[0]);
  auto* y = static_cast<T*>(run.outputs[0]);
  const int64_t n = shape.length;
  if constexpr (std::is_same_v<T, C>) {
    if (shape.stride == 1) {
      ParallelRange(run.team, shape.rows(), RowGrain(n),
                    [&](int64_t begin, int64_t end) {
                      GiveUpQuestion question(run.team);
                      for (int64_t r = begin; r < end; ++r) {
                        SoftmaxOfValues<C>(x + r * n, n, y + r * n, question);
                        if (question.given_up()) return;
                      }
                    });
      return;
    }
  }
  const int64_t weight = shape.stride == 1 ? 1 : kFarWeight;
  ForEachPiece<C>(
      run.team, shape.rows(), n, run.scratch,
      [&](int64_t begin, int64_t end, C* row) {
        GiveUpQuestion question(run.team);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t first =
              r / shape.stride * shape.stride * n + r % shape.stride;
          ForEach(n, weight, question, [&](int64_t i) {
            row[i] = static_cast<C>(x[first + i * shape.stride]);
          });
          SoftmaxOfValues<C>(row, n, row, question);
          ForEach(n, weight, question,
                  [&](int64_t i) { y[first + i * shape.stride] = T(row[i]); });
          if (question.given_up()) return;
        }
      });
}

class SoftmaxPlan final : public KernelPlan {
 public:
  SoftmaxPlan(const SoftmaxShape& shape, DType dtype)
      : shape_(shape), dtype_(dtype) {}

  size_t scratch_bytes() const override {
    if (shape_.stride == 1 && !Widens(dtype_)) return 0;
    return PieceBytes(dtype_, shape_.rows(), shape_.length);
  }

  absl::Status Run(const RunArgs& run) const override {
    DispatchType(FloatingTypeList(), dtype_, [&](auto tag) {
      RunSoftmax<typename decltype(tag)::Type>(shape_, run);
    });
    return absl::OkStatus();
  }

 private:
  const SoftmaxShape shape_;
  const DType dtype_;
};

class SoftmaxKernel final : public Kernel {
 public:
  explicit SoftmaxKernel(const NodeInfo& node) : node_(node) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    const TensorMeta& x = args.inputs[0];
    WEIR_ASSIGN_OR_RETURN(const SoftmaxShape shape,
                          SoftmaxShapeOf(node_, x.dims));
    return std::make_unique<const SoftmaxPlan>(shape, x.dtype);
  }

 private:
  const NodeInfo node_;
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeSoftmaxKernel(
    const NodeInfo& node, Device&) {
  return std::make_unique<const SoftmaxKernel>(node);
}

// Side by side a block of threads makes a row: fewer rows than there are blocks
// take as long as so many.
int64_t RowOperations(int64_t operations, Pace pace, int64_t rows) {
  constexpr int64_t kRowsSideBySide = 128;
  if (pace == Pace::kInTurn || rows == 0) return operations;
  return SaturatingMul(operations,
                       std::max<int64_t>(1, kRowsSideBySide / rows));
}

NodeCost SoftmaxCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  const TensorMeta& x = args.inputs[0];
  const auto shape = SoftmaxShapeOf(node, x.dims);
  if (!shape.ok()) return cost;
  cost.operations = RowOperations(cost.operations, pace, shape->rows());
  AddInTurn(pace, args, shape->rows(), kRowOperations, cost);
  cost.scratch_bytes =
      static_cast<int64_t>(SoftmaxPlan(*shape, x.dtype).scratch_bytes());
  return cost;
}

double EpsilonOf(const NodeInfo& node) {
  return static_cast<double>(node.attributes.Float("epsilon", 1e-5f));
}

// -- LayerNormalization -------------------------------------------------------

absl::StatusOr<size_t> LayerNormAxis(const NodeInfo& node, size_t rank) {
  return AxisOf(node, rank, -1);
}

absl::StatusOr<DType> StatisticsType(const NodeInfo& node) {
  const int64_t stash = node.attributes.Int("stash_type", 1);
  if (stash != 1 && stash != 16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "stash_type of ", stash, " is neither 1 (float) nor 16 (bfloat16)"));
  }
  return stash == 16 ? DType::kBfloat16 : DType::kFloat;
}

absl::Status InferLayerNormalization(InferContext& context) {
  const NodeInfo& node = context.node();
  WEIR_ASSIGN_OR_RETURN(const DType statistics, StatisticsType(node));
  const SymbolicShape& x = context.input_shape(0);
  SymbolicShape reduced;
  if (x.has_value()) {
    WEIR_ASSIGN_OR_RETURN(const size_t axis, LayerNormAxis(node, x->size()));
    reduced = *x;
    for (size_t i = axis; i < x->size(); ++i) (*reduced)[i] = Dim(1);
    const absl::Span<const Dim> normalized =
        absl::MakeConstSpan(*x).subspan(axis);
    for (size_t i = 1; i <= 2; ++i) {
      if (!node.HasInput(i) || !context.input_shape(i).has_value()) continue;
      const SymbolicDims& given = *context.input_shape(i);
      const std::string named =
          absl::StrCat(i == 1 ? "Scale " : "B ", ShapeString(given));
      bool fits = given.size() <= x->size();
      bool per_row = false;  // differs between rows, which ONNX allows
      for (size_t j = 0; fits && j < given.size(); ++j) {
        const Dim size = given[given.size() - 1 - j];
        fits = size == Dim(1) || !size.SurelyDiffers((*x)[x->size() - 1 - j]);
        // What is not known yet is looked at when a plan is made.
        per_row =
            per_row || (j >= normalized.size() && size.SurelyDiffers(Dim(1)));
      }
      if (!fits) {
        return absl::InvalidArgumentError(
            absl::StrCat(named, " does not broadcast to X ", ShapeString(x)));
      }
      if (per_row) {
        return absl::UnimplementedError(absl::StrCat(
            named, " differs along axes of X ", ShapeString(x),
            " that are not normalized; weir takes one for all rows: multiply "
            "or add it in a node of its own"));
      }
    }
  }
  context.SetOutput(0, node.input_types[0], x);
  if (node.num_outputs > 1) context.SetOutput(1, statistics, reduced);
  if (node.num_outputs > 2) context.SetOutput(2, statistics, reduced);
  return absl::OkStatus();
}

struct LayerNormTask {
  LayerNormShape shape;
  DType dtype = DType::kFloat;
  Dims scale, bias;
  bool has_bias = false;

  // Whether scale or bias, of shape `dims`, must be written out for a row.
  bool Expands(const Dims& dims) const {
    return Widens(dtype) || NumElements(dims).value_or(0) != shape.length;
  }
};

absl::StatusOr<LayerNormTask> LayerNormTaskOf(const NodeInfo& node,
                                              const PlanArgs& args) {
  const TensorMeta& x = args.inputs[0];
  LayerNormTask task;
  WEIR_ASSIGN_OR_RETURN(task.shape, LayerNormShapeOf(node, x.dims));
  task.dtype = x.dtype;
  task.scale = args.inputs[1].dims;
  task.has_bias = node.HasInput(2);
  if (task.has_bias) task.bias = args.inputs[2].dims;
  return task;
}

// Writes `values` of shape `dims`, broadcast to `target`, as compute type.
template <typename T>
void BroadcastRow(CpuTeam* team, const T* values, const Dims& dims,
                  const Dims& target, int64_t length, Compute<T>* row) {
  constexpr int64_t kGrain = 1 << 15;
  const Dims strides = BroadcastStrides(dims, target);
  const int64_t inner = strides.back();
  ParallelRange(team, length, kGrain, [&](int64_t begin, int64_t end) {
    Dims index(target.size(), 0);
    int64_t offset = 0;
    int64_t rest = begin;
    for (size_t axis = target.size(); axis-- > 0;) {
      index[axis] = rest % target[axis];
      rest /= target[axis];
      offset += index[axis] * strides[axis];
    }
    for (int64_t i = begin; i < end;) {
      const int64_t run = std::min(end - i, target.back() - index.back());
      for (int64_t j = 0; j < run; ++j) {
        row[i + j] = static_cast<Compute<T>>(values[offset + j * inner]);
      }
      i += run;
      index.back() += run;
      offset += run * inner;
      for (size_t axis = target.size() - 1;
           axis > 0 && index[axis] == target[axis]; --axis) {
        offset += strides[axis - 1] - index[axis] * strides[axis];
        index[axis] = 0;
        ++index[axis - 1];
      }
    }
  });
}

// Scale or bias with an element for each of a row: as it is, or written out at
// *scratch, which then moves on.
template <typename T>
const Compute<T>* WholeRow(CpuTeam* team, const LayerNormTask& task,
                           const void* values, const Dims& dims,
                           std::byte** scratch) {
  using C = Compute<T>;
  if (!task.Expands(dims)) return static_cast<const C*>(values);
  const int64_t length = task.shape.length;
  C* const row = reinterpret_cast<C*>(*scratch);
  *scratch += RowBytes<C>(length);
  BroadcastRow(team, static_cast<const T*>(values), dims, task.shape.normalized,
               length, row);
  return row;
}

template <typename C>
void NormalizeValues(const C* x, int64_t n, double epsilon, const C* scale,
                     const C* bias, C* y, C* mean, C* factor,
                     GiveUpQuestion& question) {
  C sum = 0;
  ForEach(n, 1, question, [&](int64_t i) { sum += x[i]; });
  *mean = sum / static_cast<C>(n);
  C square = 0;
  ForEach(n, 1, question,
          [&](int64_t i) { square += (x[i] - *mean) * (x[i] - *mean); });
  *factor = 1 / std::sqrt(square / static_cast<C>(n) + epsilon);
  ForEach(n, 1, question, [&](int64_t i) {
    y[i] = (x[i] - *mean) * *factor * scale[i];
    if (bias != nullptr) y[i] += bias[i];
  });
}

template <>
void NormalizeValues(const float* x, int64_t n, double epsilon,
                     const float* scale, const float* bias, float* y,
                     float* mean, float* factor, GiveUpQuestion& question) {
  float variance = 0;
  HWY_DYNAMIC_DISPATCH(MomentsOfRow)(x, n, mean, &variance, question);
  *factor = 1.0f / std::sqrt(variance + static_cast<float>(epsilon));
  int64_t i = 0;
  for (int64_t end = 0; question.NextPart(n, &end); i = end) {
    HWY_DYNAMIC_DISPATCH(ScaleRow)
    (x + i, end - i, *mean, *factor, scale + i,
     bias == nullptr ? nullptr : bias + i, y + i);
  }
}

void StoreStatistic(DType dtype, void* output, int64_t row, double value) {
  if (output == nullptr) return;
  if (dtype == DType::kBfloat16) {
    static_cast<Bfloat16*>(output)[row] = Bfloat16(static_cast<float>(value));
  } else {
    static_cast<float*>(output)[row] = static_cast<float>(value);
  }
}

template <typename T>
void RunLayerNormalization(const LayerNormTask& task, const RunArgs& run) {
  using C = Compute<T>;
  const LayerNormShape& shape = task.shape;
  const auto* x = static_cast<const T*>(run.inputs[0]);
  auto* y = static_cast<T*>(run.outputs[0]);
  const int64_t n = shape.length;
  auto* scratch = static_cast<std::byte*>(run.scratch);
  const C* const scale =
      WholeRow<T>(run.team, task, run.inputs[1], task.scale, &scratch);
  const C* const bias =
      task.has_bias
          ? WholeRow<T>(run.team, task, run.inputs[2], task.bias, &scratch)
          : nullptr;
  void* const means = run.outputs.size() > 1 ? run.outputs[1] : nullptr;
  void* const factors = run.outputs.size() > 2 ? run.outputs[2] : nullptr;
  const auto store = [&](int64_t r, C mean, C factor) {
    StoreStatistic(shape.statistics, means, r, static_cast<double>(mean));
    StoreStatistic(shape.statistics, factors, r, static_cast<double>(factor));
  };
  if constexpr (std::is_same_v<T, C>) {
    ParallelRange(
        run.team, shape.rows, RowGrain(n), [&](int64_t begin, int64_t end) {
          GiveUpQuestion question(run.team);
          for (int64_t r = begin; r < end; ++r) {
            C mean = 0, factor = 0;
            NormalizeValues<C>(x + r * n, n, shape.epsilon, scale, bias,
                               y + r * n, &mean, &factor, question);
            if (question.given_up()) return;
            store(r, mean, factor);
          }
        });
  } else {
    ForEachPiece<C>(run.team, shape.rows, n, scratch,
                    [&](int64_t begin, int64_t end, C* row) {
                      GiveUpQuestion question(run.team);
                      for (int64_t r = begin; r < end; ++r) {
                        ForEach(n, 1, question, [&](int64_t i) {
                          row[i] = static_cast<C>(x[r * n + i]);
                        });
                        C mean = 0, factor = 0;
                        NormalizeValues<C>(row, n, shape.epsilon, scale, bias,
                                           row, &mean, &factor, question);
                        ForEach(n, 1, question,
                                [&](int64_t i) { y[r * n + i] = T(row[i]); });
                        if (question.given_up()) return;
                        store(r, mean, factor);
                      }
                    });
  }
}

class LayerNormalizationPlan final : public KernelPlan {
 public:
  explicit LayerNormalizationPlan(LayerNormTask task)
      : task_(std::move(task)) {}

  size_t scratch_bytes() const override {
    const LayerNormShape& shape = task_.shape;
    if (shape.rows == 0) return 0;
    const size_t row = PieceBytes(task_.dtype, 1, shape.length);
    size_t bytes = task_.Expands(task_.scale) ? row : 0;
    if (task_.has_bias && task_.Expands(task_.bias)) bytes += row;
    if (Widens(task_.dtype)) {
      bytes += PieceBytes(task_.dtype, shape.rows, shape.length);
    }
    return bytes;
  }

  absl::Status Run(const RunArgs& run) const override {
    if (task_.shape.rows == 0) return absl::OkStatus();
    DispatchType(FloatingTypeList(), task_.dtype, [&](auto tag) {
      RunLayerNormalization<typename decltype(tag)::Type>(task_, run);
    });
    return absl::OkStatus();
  }

 private:
  const LayerNormTask task_;
};

class LayerNormalizationKernel final : public Kernel {
 public:
  explicit LayerNormalizationKernel(const NodeInfo& node) : node_(node) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    WEIR_ASSIGN_OR_RETURN(LayerNormTask task, LayerNormTaskOf(node_, args));
    return std::make_unique<const LayerNormalizationPlan>(std::move(task));
  }

 private:
  const NodeInfo node_;
};

absl::StatusOr<std::unique_ptr<const Kernel>> MakeLayerNormalizationKernel(
    const NodeInfo& node, Device&) {
  return std::make_unique<const LayerNormalizationKernel>(node);
}

NodeCost LayerNormalizationCost(const NodeInfo& node, Pace pace,
                                const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  auto task = LayerNormTaskOf(node, args);
  if (!task.ok() || task->shape.rows == 0) return cost;
  const int64_t rows = task->shape.rows, length = task->shape.length;
  cost.operations = RowOperations(cost.operations, pace, rows);
  AddInTurn(pace, args, rows, kRowOperations, cost);
  for (const Dims* dims : {&task->scale, &task->bias}) {
    if ((dims == &task->bias && !task->has_bias) || !task->Expands(*dims)) {
      continue;
    }
    cost.operations = SaturatingAdd(cost.operations, length);
  }
  cost.scratch_bytes = static_cast<int64_t>(
      LayerNormalizationPlan(*std::move(task)).scratch_bytes());
  return cost;
}

// -- BatchNormalization -------------------------------------------------------

absl::Status InferBatchNormalization(InferContext& context) {
  const SymbolicShape& x = context.input_shape(0);
  if (x.has_value()) {
    if (x->empty()) {
      return absl::InvalidArgumentError("X has no axis");
    }
    // A single axis is that of the batch; there is one channel then.
    const Dim channels = x->size() == 1 ? Dim(1) : (*x)[1];
    constexpr std::string_view kNames[] = {"scale", "B", "input_mean",
                                           "input_var"};
    for (size_t i = 1; i <= 4; ++i) {
      const SymbolicShape& given = context.input_shape(i);
      if (!given.has_value()) continue;
      if (given->size() != 1 || (*given)[0].SurelyDiffers(channels)) {
        return absl::InvalidArgumentError(
            absl::StrCat(std::string(kNames[i - 1]), " ", ShapeString(given),
                         " does not fit the channels of X ", ShapeString(x)));
      }
    }
  }
  const NodeInfo& node = context.node();
  for (int i = 0; i < node.num_outputs; ++i) {
    context.SetOutput(static_cast<size_t>(i), node.input_types[i == 0 ? 0 : 3],
                      i == 0 ? x : context.input_shape(3));
  }
  return absl::OkStatus();
}

NodeCost BatchNormalizationCost(const NodeInfo& node, Pace pace,
                                const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  const Dims& x = args.inputs[0].dims;
  AddInTurn(pace, args, SaturatingMul(x[0], x.size() == 1 ? 1 : x[1]),
            kRowOperations, cost);
  return cost;
}

double ReadFloating(const void* values, DType dtype, int64_t i) {
  double result = 0;
  DispatchType(FloatingTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    result = static_cast<double>(static_cast<const T*>(values)[i]);
  });
  return result;
}

template <typename T>
void AffineValues(const T* x, int64_t n, double mean, double factor,
                  double bias, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(AffineRow)
    (x, n, static_cast<float>(mean), static_cast<float>(factor),
     static_cast<float>(bias), y);
  } else {
    using C = Compute<T>;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = T((static_cast<C>(x[i]) - static_cast<C>(mean)) *
                   static_cast<C>(factor) +
               static_cast<C>(bias));
    }
  }
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeBatchNormalizationKernel(
    const NodeInfo& node, Device&) {
  WEIR_ASSIGN_OR_RETURN(const double epsilon, BatchNormEpsilonOf(node));
  return MakeKernel([epsilon, types = node.input_types](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const Dims& dims = args.inputs[0].dims;
    const int64_t channels = dims.size() == 1 ? 1 : dims[1];
    const int64_t images = dims[0];
    const int64_t planes = images * channels;
    const int64_t plane = planes == 0 ? 0 : args.inputs[0].elements / planes;
    return RunFunction([=](const RunArgs& run) {
      DispatchType(FloatingTypeList(), types[0], [&](auto tag) {
        using T = typename decltype(tag)::Type;
        const auto* x = static_cast<const T*>(run.inputs[0]);
        auto* y = static_cast<T*>(run.outputs[0]);
        ParallelRange(
            run.team, planes * plane, kGrainElements,
            [&](int64_t begin, int64_t end) {
              for (int64_t n; begin < end; begin += n) {
                const int64_t p = begin / plane;
                n = std::min(end, (p + 1) * plane) - begin;
                const int64_t c = p % channels;
                const double factor =
                    ReadFloating(run.inputs[1], types[1], c) /
                    std::sqrt(ReadFloating(run.inputs[4], types[4], c) +
                              epsilon);
                AffineValues(x + begin, n,
                             ReadFloating(run.inputs[3], types[3], c), factor,
                             ReadFloating(run.inputs[2], types[2], c),
                             y + begin);
              }
            });
      });
      return absl::OkStatus();
    });
  });
}

}  // namespace

absl::StatusOr<SoftmaxShape> SoftmaxShapeOf(const NodeInfo& node,
                                            const Dims& dims) {
  const int rank = static_cast<int>(dims.size());
  WEIR_ASSIGN_OR_RETURN(const int axis, SoftmaxAxis(node, rank));
  SoftmaxShape shape;
  for (int i = 0; i < rank; ++i) {
    int64_t& size = i < axis                      ? shape.outer
                    : i == axis || Flattens(node) ? shape.length
                                                  : shape.stride;
    size = SaturatingMul(size, dims[static_cast<size_t>(i)]);
  }
  return shape;
}

absl::StatusOr<LayerNormShape> LayerNormShapeOf(const NodeInfo& node,
                                                const Dims& dims) {
  LayerNormShape shape;
  WEIR_ASSIGN_OR_RETURN(const size_t axis, LayerNormAxis(node, dims.size()));
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t& size = d < axis ? shape.rows : shape.length;
    size = SaturatingMul(size, dims[d]);
  }
  if (shape.length == 0 && node.num_outputs == 1) shape.rows = 0;
  shape.normalized.assign(dims.begin() + axis, dims.end());
  shape.epsilon = EpsilonOf(node);
  WEIR_ASSIGN_OR_RETURN(shape.statistics, StatisticsType(node));
  return shape;
}

absl::StatusOr<double> BatchNormEpsilonOf(const NodeInfo& node) {
  if (node.attributes.Int("training_mode", 0) != 0 || node.num_outputs > 1) {
    return absl::UnimplementedError(
        "BatchNormalization in training mode; weir runs inference");
  }
  return EpsilonOf(node);
}

absl::Status Register_onnx_Softmax(OpRegistry& registry) {
  OpDef def;
  def.name = "Softmax";
  def.doc =
      "exp(x) divided by its sum along an axis; before opset 13 along all axes "
      "from the given one on.";
  def.inputs = {{.name = "input", .types = kFloatTypes}};
  def.outputs = {{.name = "output"}};
  def.attributes = {
      {"axis", AttributeType::kInt, false,
       "In [-rank, rank); default -1, before opset 13 default 1."}};
  def.infer = InferSoftmax;
  def.cost = SoftmaxCost;
  // Exponentials in vectors; of doubles and along a far axis slower.
  def.cpu_weight = 4 * kElementCpuWeight;
  return registry.Register(std::move(def), MakeSoftmaxKernel);
}

absl::Status Register_onnx_LayerNormalization(OpRegistry& registry) {
  OpDef def;
  def.name = "LayerNormalization";
  def.doc =
      "(x - mean) / sqrt(variance + epsilon) * Scale + B over the axes from "
      "`axis` on; optionally also the mean and the inverse deviation.";
  def.inputs = {{.name = "X", .types = kFloatTypes},
                {.name = "Scale", .types = kFloatTypes},
                {.name = "B", .types = kFloatTypes, .optional = true}};
  def.outputs = {{.name = "Y"},
                 {.name = "Mean", .optional = true},
                 {.name = "InvStdDev", .optional = true}};
  def.attributes = {
      {"axis", AttributeType::kInt, false, "In [-rank, rank), default -1."},
      {"epsilon", AttributeType::kFloat, false, "Default 1e-5."},
      {"stash_type", AttributeType::kInt, false,
       "Type of Mean and InvStdDev: 1 (float, default) or 16 (bfloat16)."}};
  def.infer = InferLayerNormalization;
  def.cost = LayerNormalizationCost;
  return registry.Register(std::move(def), MakeLayerNormalizationKernel);
}

absl::Status Register_onnx_BatchNormalization(OpRegistry& registry) {
  OpDef def;
  def.name = "BatchNormalization";
  def.doc =
      "(x - input_mean) / sqrt(input_var + epsilon) * scale + B per channel "
      "(axis 1). Inference only.";
  def.inputs = {{.name = "X", .types = kFloatTypes},
                {.name = "scale", .types = kFloatTypes, .group = 1},
                {.name = "B", .types = kFloatTypes, .group = 1},
                {.name = "input_mean", .types = kFloatTypes, .group = 2},
                {.name = "input_var", .types = kFloatTypes, .group = 2}};
  def.outputs = {{.name = "Y"},
                 {.name = "running_mean", .optional = true},
                 {.name = "running_var", .optional = true},
                 {.name = "saved_mean", .optional = true},
                 {.name = "saved_var", .optional = true}};
  def.attributes = {
      {"epsilon", AttributeType::kFloat, false, "Default 1e-5."},
      {"momentum", AttributeType::kFloat, false, "Of training; not used."},
      {"training_mode", AttributeType::kInt, false,
       "Default 0; 1 is not implemented."}};
  def.infer = InferBatchNormalization;
  def.cost = BatchNormalizationCost;
  return registry.Register(std::move(def), MakeBatchNormalizationKernel);
}

}  // namespace weir
#endif  // HWY_ONCE
