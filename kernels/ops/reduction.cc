#include "kernels/ops/reduction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/infer.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/scalar_functions.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

// -- Axes ---------------------------------------------------------------------

SymbolicDims ReducedShape(const SymbolicDims& input,
                          const std::vector<bool>& reduced, bool keep) {
  SymbolicDims dims;
  for (size_t d = 0; d < input.size(); ++d) {
    if (!reduced[d]) {
      dims.push_back(input[d]);
    } else if (keep) {
      dims.push_back(1);
    }
  }
  return dims;
}

absl::Status InferReduce(InferContext& context) {
  const NodeInfo& node = context.node();
  const DType dtype = node.input_types[0];
  const SymbolicShape& input = context.input_shape(0);
  WEIR_ASSIGN_OR_RETURN(const IntList axes,
                        AttributeOrInput(context, "axes", 1));
  const bool keep = node.attributes.Int("keepdims", 1) != 0;
  if (!input.has_value() || axes.state == IntList::State::kUnknown) {
    SymbolicShape shape;
    if (input.has_value() && keep) shape = SymbolicDims(input->size());
    context.SetOutput(0, dtype, std::move(shape));
    return absl::OkStatus();
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<bool> reduced,
                        ReducedDims(node, axes.values, input->size()));
  context.SetOutput(0, dtype, ReducedShape(*input, reduced, keep));
  return absl::OkStatus();
}

// The CPU has partial results of whole pieces.
NodeCost ReductionCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  const int64_t elements = args.inputs[0].elements;
  cost.scratch_bytes = elements / 4096;
  AddInTurn(pace, args, RowsOf(args.inputs[0]), kRowOperations, cost);
  return cost;
}

// One search for each output, along its axis.
NodeCost ArgMaxCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  NodeCost cost = ReductionCost(node, pace, args);
  const TensorMeta& input = args.inputs[0];
  AddInTurn(pace, args, args.outputs[0].elements, kRowOperations, cost);
  const auto search = ArgMaxSearchOf(node, input.dims.size());
  if (!search.ok()) return cost;
  AddStridedInTurn(
      pace, args, input, input.elements,
      SaturatingProduct(
          absl::MakeConstSpan(input.dims).subspan(search->axis + 1)),
      cost);
  return cost;
}

// -- Geometry -----------------------------------------------------------------

// The loops around the innermost dim, which is either kept ("columns": rows of
// accumulators) or reduced ("runs": dense sums).
struct Geometry {
  explicit Geometry(const ReductionShape& shape)
      : kept(shape.kept.dims),
        kept_strides(shape.kept.strides[0]),
        reduced(shape.reduced.dims),
        reduced_strides(shape.reduced.strides[0]),
        runs(shape.inner_reduced),
        length(runs ? reduced.back() : kept.back()),
        outputs(shape.outputs),
        count(shape.count) {
    (runs ? reduced : kept).pop_back();
    (runs ? reduced_strides : kept_strides).pop_back();
  }

  bool empty() const { return outputs == 0 || count == 0; }

  Dims kept;  // outer dims, outermost first
  Dims kept_strides;
  Dims reduced;
  Dims reduced_strides;
  bool runs;       // the innermost dim is reduced
  int64_t length;  // of it
  int64_t outputs;
  int64_t count;  // elements reduced into each output
};

int64_t Offset(int64_t index, const Dims& dims, const Dims& strides) {
  int64_t offset = 0;
  for (size_t d = dims.size(); d-- > 0;) {
    offset += index % dims[d] * strides[d];
    index /= dims[d];
  }
  return offset;
}

// -- Reductions ---------------------------------------------------------------

// What is added up: floats and halves in double, integers so that they wrap.
template <typename T>
struct SumType {
  using Type = double;
};
template <>
struct SumType<int32_t> {
  using Type = uint64_t;
};
template <>
struct SumType<uint32_t> {
  using Type = uint64_t;
};
template <>
struct SumType<int64_t> {
  using Type = uint64_t;
};
template <>
struct SumType<uint64_t> {
  using Type = uint64_t;
};

template <typename T>
inline constexpr bool kIsHalf =
    std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;
template <typename T>
inline constexpr bool kIsFloat = kIsHalf<T> || std::is_floating_point_v<T>;

// The sum, or the mean where the divisor is not 1.
template <typename T>
struct Sum {
  using Acc = typename SumType<T>::Type;
  static Acc Identity() { return 0; }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) { return a + b; }
  // Integers are divided toward zero; the mean of none is 0.
  static T Finish(Acc acc, int64_t divisor) {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(acc / static_cast<double>(divisor));
    } else if constexpr (kIsHalf<T>) {
      return T(scalar::ToHalfSource(acc / static_cast<double>(divisor)));
    } else if constexpr (std::is_signed_v<T>) {
      return divisor == 0 ? T(0)
                          : static_cast<T>(static_cast<int64_t>(acc) / divisor);
    } else {
      return divisor == 0
                 ? T(0)
                 : static_cast<T>(acc / static_cast<uint64_t>(divisor));
    }
  }
};

template <typename T, bool kMax>
struct Extreme {
  using Acc = std::conditional_t<kIsHalf<T>, float, T>;
  static Acc Identity() {
    using Limits = std::numeric_limits<Acc>;
    if constexpr (kIsFloat<T>) {
      return kMax ? -Limits::infinity() : Limits::infinity();
    } else {
      return kMax ? Limits::min() : Limits::max();
    }
  }
  static Acc Load(T x) { return static_cast<Acc>(x); }
  static Acc Combine(Acc a, Acc b) {
    return kMax ? scalar::Maximum(a, b) : scalar::Minimum(a, b);
  }
  static T Finish(Acc acc, int64_t) { return T(acc); }
};
template <typename T>
using Max = Extreme<T, true>;
template <typename T>
using Min = Extreme<T, false>;

// A dense run. Eight accumulators: the order of additions is fixed, and the
// compiler may use vectors for it. Anything at all if it was given up.
template <typename Op, typename T>
typename Op::Acc ReduceRun(const T* data, int64_t n, GiveUpQuestion& question) {
  using Acc = typename Op::Acc;
  constexpr int64_t kLanes = 8;
  std::array<Acc, kLanes> lanes;
  lanes.fill(Op::Identity());
  int64_t i = 0;
  for (int64_t end = 0; question.NextPart(n, &end);) {
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) {
        Acc& lane = lanes[static_cast<size_t>(k)];
        lane = Op::Combine(lane, Op::Load(data[i + k]));
      }
    }
  }
  Acc result = Op::Identity();
  if (question.given_up()) return result;
  for (Acc lane : lanes) result = Op::Combine(result, lane);
  for (; i < n; ++i) result = Op::Combine(result, Op::Load(data[i]));
  return result;
}

// Long runs are cut into pieces of this many elements, always, so that the
// result does not depend on the number of threads.
constexpr int64_t kPiece = 1 << 16;
constexpr int64_t kGrainElements = 1 << 15;
constexpr int64_t kColumns = 256;

template <typename Op, typename T>
class ReducePlan final : public KernelPlan {
 public:
  using Acc = typename Op::Acc;

  ReducePlan(const Geometry& geometry, bool mean)
      : g_(geometry), divisor_(mean ? g_.count : 1) {
    // Few outputs of long runs: the pieces are the parallel work.
    if (!g_.empty() && g_.runs && g_.reduced.empty() && g_.length > kPiece) {
      pieces_ = (g_.length + kPiece - 1) / kPiece;
    }
  }

  size_t scratch_bytes() const override {
    return pieces_ == 1
               ? 0
               : static_cast<size_t>(g_.outputs * pieces_) * sizeof(Acc);
  }

  absl::Status Run(const RunArgs& args) const override {
    const T* in = static_cast<const T*>(args.inputs[0]);
    T* out = static_cast<T*>(args.outputs[0]);
    if (g_.outputs == 0) return absl::OkStatus();
    if (g_.count == 0) {
      const T nothing = Op::Finish(Op::Identity(), divisor_);
      ParallelRange(args.team, g_.outputs, kGrainElements,
                    [&](int64_t begin, int64_t end) {
                      std::fill(out + begin, out + end, nothing);
                    });
    } else if (!g_.runs) {
      RunColumns(args.team, in, out);
    } else if (pieces_ > 1) {
      RunPieces(args.team, in, static_cast<Acc*>(args.scratch), out);
    } else {
      RunRuns(args.team, in, out);
    }
    return absl::OkStatus();
  }

 private:
  int64_t Grain(int64_t elements_each) const {
    return std::max<int64_t>(
        1, kGrainElements / std::max<int64_t>(elements_each, 1));
  }

  void RunRuns(CpuTeam* team, const T* in, T* out) const {
    const int64_t inner = g_.count / g_.length;
    ParallelRange(
        team, g_.outputs, Grain(g_.count), [&](int64_t begin, int64_t end) {
          GiveUpQuestion question(team);
          for (int64_t i = begin; i < end; ++i) {
            const T* base = in + Offset(i, g_.kept, g_.kept_strides);
            Acc acc = Op::Identity();
            for (int64_t r = 0; r < inner; ++r) {
              if (question.Asked(kRowOperations)) return;
              acc = Op::Combine(
                  acc, ReduceRun<Op>(
                           base + Offset(r, g_.reduced, g_.reduced_strides),
                           g_.length, question));
              if (question.given_up()) return;
            }
            out[i] = Op::Finish(acc, divisor_);
          }
        });
  }

  void RunPieces(CpuTeam* team, const T* in, Acc* partial, T* out) const {
    ParallelRange(
        team, g_.outputs * pieces_, 1, [&](int64_t begin, int64_t end) {
          GiveUpQuestion question(team);
          for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % pieces_ * kPiece;
            const int64_t n = std::min(kPiece, g_.length - first);
            const T* base =
                in + Offset(i / pieces_, g_.kept, g_.kept_strides) + first;
            partial[i] = ReduceRun<Op>(base, n, question);
          }
        });
    for (int64_t i = 0; i < g_.outputs; ++i) {
      Acc acc = Op::Identity();
      for (int64_t p = 0; p < pieces_; ++p) {
        acc = Op::Combine(acc, partial[i * pieces_ + p]);
      }
      out[i] = Op::Finish(acc, divisor_);
    }
  }

  void RunColumns(CpuTeam* team, const T* in, T* out) const {
    const int64_t bands = (g_.length + kColumns - 1) / kColumns;
    const int64_t rows = g_.outputs / g_.length;
    const int64_t band_elements = std::min(g_.length, kColumns) * g_.count;
    ParallelRange(
        team, rows * bands, Grain(band_elements),
        [&](int64_t begin, int64_t end) {
          std::array<Acc, kColumns> accs;
          GiveUpQuestion given_up(team);
          for (int64_t i = begin; i < end; ++i) {
            const int64_t first = i % bands * kColumns;
            const int64_t n = std::min(kColumns, g_.length - first);
            const int64_t row = i / bands;
            const T* base = in + Offset(row, g_.kept, g_.kept_strides) + first;
            std::fill_n(accs.data(), n, Op::Identity());
            for (int64_t r = 0; r < g_.count; ++r) {
              if (given_up.Asked(n + kRowOperations)) return;
              const T* __restrict data =
                  base + Offset(r, g_.reduced, g_.reduced_strides);
              Acc* __restrict acc = accs.data();
              for (int64_t k = 0; k < n; ++k) {
                acc[k] = Op::Combine(acc[k], Op::Load(data[k]));
              }
            }
            T* target = out + row * g_.length + first;
            for (int64_t k = 0; k < n; ++k) {
              target[k] = Op::Finish(accs[static_cast<size_t>(k)], divisor_);
            }
          }
        });
  }

  const Geometry g_;
  const int64_t divisor_;  // of a sum
  int64_t pieces_ = 1;
};

template <template <typename> typename Op, typename List, bool kMean>
class ReduceKernel final : public Kernel {
 public:
  explicit ReduceKernel(NodeInfo node) : node_(std::move(node)) {}

  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs& args) const override {
    const TensorMeta& input = args.inputs[0];
    const auto axes = AttributeOrInput(node_, args, "axes", 1);
    WEIR_ASSIGN_OR_RETURN(
        const std::vector<bool> reduced,
        ReducedDims(node_,
                    axes.has_value() ? absl::MakeConstSpan(*axes)
                                     : absl::Span<const int64_t>(),
                    input.dims.size()));
    const Geometry geometry(ReductionShapeOf(input.dims, reduced));
    std::unique_ptr<const KernelPlan> plan;
    DispatchType(List(), input.dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      plan = std::make_unique<const ReducePlan<Op<T>, T>>(geometry, kMean);
    });
    if (plan == nullptr) {
      return absl::UnimplementedError("no CPU code for this element type");
    }
    return plan;
  }

 private:
  const NodeInfo node_;
};

template <template <typename> typename Op, typename List, bool kMean = false>
absl::StatusOr<std::unique_ptr<const Kernel>> MakeReduceKernel(
    const NodeInfo& node, Device&) {
  return std::make_unique<const ReduceKernel<Op, List, kMean>>(node);
}

// -- ArgMax -------------------------------------------------------------------

absl::Status InferArgMax(InferContext& context) {
  const NodeInfo& node = context.node();
  SymbolicShape shape;
  if (const SymbolicShape& input = context.input_shape(0)) {
    WEIR_ASSIGN_OR_RETURN(const ArgMaxSearch search,
                          ArgMaxSearchOf(node, input->size()));
    std::vector<bool> reduced(input->size(), false);
    reduced[search.axis] = true;
    if ((*input)[search.axis] == Dim(0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "axis ", search.axis, " of shape ", ShapeString(input), " is empty"));
    }
    shape =
        ReducedShape(*input, reduced, node.attributes.Int("keepdims", 1) != 0);
  }
  context.SetOutput(0, DType::kInt64, std::move(shape));
  return absl::OkStatus();
}

// The first greatest of `n` elements `stride` apart, or the last one; NaN is
// greater than any number. Any of them if it was given up.
template <typename T>
int64_t FindMax(const T* data, int64_t n, int64_t stride, bool last,
                GiveUpQuestion& question) {
  using Acc = std::conditional_t<kIsHalf<T>, float, T>;
  // Each of them lies in a line of its own.
  const int64_t weight = stride == 1 ? 1 : 8;
  int64_t best = 0;
  Acc greatest = static_cast<Acc>(data[0]);
  int64_t i = 1;
  for (int64_t end = 0; question.NextPart(n, &end, weight);) {
    for (; i < end; ++i) {
      const Acc value = static_cast<Acc>(data[i * stride]);
      const bool value_nan = value != value;
      const bool best_nan = greatest != greatest;
      const bool better = value > greatest || (value_nan && !best_nan);
      const bool equal = value == greatest || (value_nan && best_nan);
      if (better || (last && equal)) {
        best = i;
        greatest = value;
      }
    }
  }
  return best;
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeArgMaxKernel(
    const NodeInfo& node, Device&) {
  return MakeKernel([node](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const TensorMeta& input = args.inputs[0];
    WEIR_ASSIGN_OR_RETURN(const ArgMaxSearch search,
                          ArgMaxSearchOf(node, input.dims.size()));
    const int64_t n = input.dims[search.axis];
    const int64_t stride = DenseStrides(input.dims)[search.axis];
    const int64_t outputs = args.outputs[0].elements;
    const DType dtype = input.dtype;
    return RunFunction([=](const RunArgs& run) {
      int64_t* out = static_cast<int64_t*>(run.outputs[0]);
      DispatchType(NumericTypeList(), dtype, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        const T* in = static_cast<const T*>(run.inputs[0]);
        ParallelRange(
            run.team, outputs, std::max<int64_t>(1, kGrainElements / n),
            [&](int64_t begin, int64_t end) {
              GiveUpQuestion question(run.team);
              for (int64_t i = begin; i < end && !question.given_up(); ++i) {
                const T* base = in + i / stride * stride * n + i % stride;
                out[i] = FindMax(base, n, stride, search.last, question);
              }
            });
      });
      return absl::OkStatus();
    });
  });
}

// -- Definitions --------------------------------------------------------------

using SumTypeList = Join<FloatTypeList, HalfTypeList,
                         TypeList<int32_t, int64_t, uint32_t, uint64_t>>;
using ExtremeTypeList = Join<SumTypeList, TypeList<int8_t, uint8_t, bool>>;

constexpr TypeSet kSumTypes =
    kFloatTypes |
    TypeSet{DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64};
constexpr TypeSet kExtremeTypes =
    kSumTypes | TypeSet{DType::kInt8, DType::kUint8, DType::kBool};

OpDef ReduceDef(std::string_view name, std::string_view doc, TypeSet types) {
  OpDef def;
  def.name = name;
  def.doc = doc;
  def.inputs = {
      {.name = "data", .types = types},
      {.name = "axes", .types = {DType::kInt64}, .group = 1, .optional = true}};
  def.outputs = {{.name = "reduced"}};
  def.attributes = {{"axes", AttributeType::kInts, false,
                     "Or an input, in every opset; default all."},
                    {"keepdims", AttributeType::kInt, false,
                     "1 (default) keeps reduced dimensions as 1."},
                    {"noop_with_empty_axes", AttributeType::kInt, false,
                     "1: without axes nothing is reduced; default 0."}};
  def.host_inputs = 1u << 1;
  def.infer = InferReduce;
  def.cost = ReductionCost;
  return def;
}

}  // namespace

absl::StatusOr<std::vector<bool>> ReducedDims(const NodeInfo& node,
                                              absl::Span<const int64_t> axes,
                                              size_t rank) {
  if (axes.empty()) {
    const bool noop = node.attributes.Int("noop_with_empty_axes", 0) != 0;
    return std::vector<bool>(rank, !noop);
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<int> sorted,
                        NormalizeAxes(axes, static_cast<int>(rank)));
  std::vector<bool> reduced(rank, false);
  for (int axis : sorted) reduced[static_cast<size_t>(axis)] = true;
  return reduced;
}

ReductionShape ReductionShapeOf(const Dims& dims,
                                const std::vector<bool>& reduced) {
  ReductionShape shape;
  const Dims strides = DenseStrides(dims);
  for (size_t d = 0; d < dims.size(); ++d) {
    int64_t& size = reduced[d] ? shape.count : shape.outputs;
    size = SaturatingMul(size, dims[d]);
    (reduced[d] ? shape.reduced : shape.kept).Append(dims[d], {strides[d]});
    if (dims[d] != 1) shape.inner_reduced = reduced[d];
  }
  shape.kept.AtLeastOne(0);
  shape.reduced.AtLeastOne(0);
  return shape;
}

absl::StatusOr<ArgMaxSearch> ArgMaxSearchOf(const NodeInfo& node, size_t rank) {
  ArgMaxSearch search;
  WEIR_ASSIGN_OR_RETURN(search.axis, AxisOf(node, rank));
  search.last = node.attributes.Int("select_last_index", 0) != 0;
  return search;
}

absl::Status Register_onnx_ReduceSum(OpRegistry& registry) {
  return registry.Register(
      ReduceDef("ReduceSum",
                "The sum over some axes; floats are added in double, integers "
                "wrap.",
                kSumTypes),
      MakeReduceKernel<Sum, SumTypeList>);
}

absl::Status Register_onnx_ReduceMean(OpRegistry& registry) {
  return registry.Register(
      ReduceDef("ReduceMean",
                "The mean over some axes; of integers, toward zero.",
                kSumTypes),
      MakeReduceKernel<Sum, SumTypeList, true>);
}

absl::Status Register_onnx_ReduceMax(OpRegistry& registry) {
  return registry.Register(
      ReduceDef("ReduceMax",
                "The greatest element over some axes; NaN wins; of nothing, "
                "the least value of the type.",
                kExtremeTypes),
      MakeReduceKernel<Max, ExtremeTypeList>);
}

absl::Status Register_onnx_ReduceMin(OpRegistry& registry) {
  return registry.Register(
      ReduceDef("ReduceMin",
                "The least element over some axes; NaN wins; of nothing, the "
                "greatest value of the type.",
                kExtremeTypes),
      MakeReduceKernel<Min, ExtremeTypeList>);
}

absl::Status Register_onnx_ArgMax(OpRegistry& registry) {
  OpDef def;
  def.name = "ArgMax";
  def.doc = "The index of the greatest element along an axis; NaN wins.";
  def.inputs = {{.name = "data", .types = kNumericTypes}};
  def.outputs = {{.name = "reduced"}};
  def.attributes = {
      {"axis", AttributeType::kInt, false, "In [-rank, rank), default 0."},
      {"keepdims", AttributeType::kInt, false,
       "1 (default) keeps the axis as 1."},
      {"select_last_index", AttributeType::kInt, false,
       "1: the last of equal elements; default 0, the first."}};
  def.infer = InferArgMax;
  def.cost = ArgMaxCost;
  return registry.Register(std::move(def), MakeArgMaxKernel);
}

}  // namespace weir
