#include "kernels/ops/pooling.h"

#include <algorithm>
#include <limits>
#include <type_traits>
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

absl::Status InferPool(InferContext& context) {
  const NodeInfo& node = context.node();
  const SymbolicShape& x = context.input_shape(0);
  SymbolicShape shape;
  if (x.has_value()) {
    if (x->size() < 3) {
      return absl::InvalidArgumentError(
          absl::StrCat("X ", ShapeString(x), " has no spatial axis"));
    }
    const int spatial = static_cast<int>(x->size()) - 2;
    WEIR_ASSIGN_OR_RETURN(const SpatialWindow window,
                          ParseSpatialWindow(node, spatial, {}));
    shape = SymbolicDims{(*x)[0], (*x)[1]};
    for (int i = 0; i < spatial; ++i) {
      WEIR_ASSIGN_OR_RETURN(
          const Dim size,
          OutputSize(window, i, (*x)[static_cast<size_t>(i) + 2]));
      shape->push_back(size);
    }
  }
  context.SetOutput(0, node.input_types[0], shape);
  if (node.num_outputs > 1) {
    context.SetOutput(1, DType::kInt64, std::move(shape));
  }
  return absl::OkStatus();
}

absl::Status InferGlobalPool(InferContext& context) {
  const SymbolicShape& x = context.input_shape(0);
  SymbolicShape shape;
  if (x.has_value()) {
    if (x->size() < 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("X ", ShapeString(x), " has no channels"));
    }
    shape = SymbolicDims(x->size(), Dim(1));
    (*shape)[0] = (*x)[0];
    (*shape)[1] = (*x)[1];
    for (size_t i = 2; i < x->size(); ++i) {
      if ((*x)[i].known() && (*x)[i].value() == 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("X ", ShapeString(x), " has nothing to average"));
      }
    }
  }
  context.SetOutput(0, context.node().input_types[0], std::move(shape));
  return absl::OkStatus();
}

// A window has no more taps along an axis than the input has positions for
// them: what lies in the padding is never looked at.
NodeCost PoolCost(const NodeInfo& node, Pace pace, const PlanArgs& args) {
  const Dims& x = args.inputs[0].dims;
  NodeCost cost = LinearCost(node, pace, args);
  const auto window =
      ParseSpatialWindow(node, static_cast<int>(x.size()) - 2, {});
  if (!window.ok()) return cost;
  int64_t taps = args.outputs[0].elements;
  for (size_t i = 0; i < window->axes.size(); ++i) {
    const WindowAxis& axis = window->axes[i];
    const int64_t size = x[i + 2];  // up to 2^63 - 1 beside one of 0
    const int64_t inside =
        size / axis.dilation + (size % axis.dilation == 0 ? 0 : 1);
    taps = SaturatingMul(taps, std::min(axis.kernel, inside));
  }
  cost.operations = SaturatingAdd(cost.operations, taps);
  AddInTurn(pace, args, args.outputs[0].elements, kRowOperations, cost);
  return cost;
}

// The taps of one window along one axis that lie inside the input.
struct Taps {
  int64_t first = 0;  // position of the first
  int64_t count = 0;
  int64_t divisor = 0;  // with those in the padding
};

// Of window i along an axis. Most windows lie inside as a whole.
Taps TapsAt(const SpatialAxis& axis, int64_t i) {
  const WindowAxis& window = axis.window;
  const int64_t start = i * window.stride - window.pad_begin;
  if (start >= 0 && start + window.reach() <= axis.in) {
    return {start, window.kernel, window.kernel};
  }
  const auto taps_below = [&](int64_t limit) {
    const int64_t n = limit <= start ? 0
                                     : (limit - start + window.dilation - 1) /
                                           window.dilation;
    return std::min(n, window.kernel);
  };
  const int64_t skipped = taps_below(0);
  return {.first = start + skipped * window.dilation,
          .count = taps_below(axis.in) - skipped,
          .divisor = taps_below(axis.in + window.pad_end)};
}

struct PoolPlan {
  int64_t planes = 1;
  SpatialAxes axes;
  bool include_pad = false;
  bool column_major = false;

  int64_t in_plane() const { return axes[0].in * axes[1].in * axes[2].in; }
  int64_t out_plane() const { return axes[0].out * axes[1].out * axes[2].out; }
};

absl::StatusOr<PoolPlan> MakePoolPlan(const NodeInfo& node,
                                      const PlanArgs& args) {
  const Dims& x = args.inputs[0].dims;
  WEIR_ASSIGN_OR_RETURN(const Pooling pooling, PoolingOf(node, x));
  PoolPlan plan;
  plan.planes = SaturatingMul(x[0], x[1]);
  plan.include_pad = pooling.include_pad;
  plan.column_major = pooling.column_major;
  plan.axes = SpatialAxesOf(pooling.window, x, args.outputs[0].dims);
  return plan;
}

// Calls fn(output index, taps of the three axes) for each window of [begin,
// end) in a plane.
template <typename Fn>
void ForEachWindow(const PoolPlan& plan, int64_t begin, int64_t end,
                   const Fn& fn) {
  const int64_t height = plan.axes[1].out;
  const int64_t width = plan.axes[2].out;
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / width;
    const Taps a = TapsAt(plan.axes[0], row / height);
    const Taps b = TapsAt(plan.axes[1], row % height);
    const int64_t past = std::min(end, (row + 1) * width);
    for (; at < past; ++at) {
      fn(at, a, b, TapsAt(plan.axes[2], at - row * width));
    }
  }
}

// Calls fn(plane, begin, end) over the windows of `planes` planes (for channels
// last, images), in pieces of about kPieceTaps taps of `channels` elements.
template <typename Fn>
void ForEachPiece(const PoolPlan& plan, int64_t planes, int64_t channels,
                  CpuTeam* team, const Fn& fn) {
  constexpr int64_t kPieceTaps = int64_t{1} << 15;
  int64_t window = channels;  // taps of one
  for (const SpatialAxis& axis : plan.axes) {
    window = SaturatingMul(
        window, std::max<int64_t>(1, std::min(axis.window.kernel, axis.in)));
  }
  const int64_t windows = plan.out_plane();
  if (windows == 0) return;  // of however many planes
  const int64_t pieces =
      PieceCount(SaturatingMul(windows, window), kPieceTaps, windows);
  // Cut where no product of the two can overflow.
  const int64_t length = windows / pieces, longer = windows % pieces;
  ParallelFor(team, planes * pieces, [&](int64_t i) {
    const int64_t piece = i % pieces;
    const int64_t begin = piece * length + std::min(piece, longer);
    fn(i / pieces, begin, begin + length + (piece < longer ? 1 : 0));
  });
}

// The elements between two questions whether to go on, of windows and planes
// that have more.
constexpr int64_t kBetweenQuestions = int64_t{1} << 20;

// Calls fn(offset) for each of `channels` elements of a window, in order, as
// long as the team has not given up.
template <typename Fn>
void ForEachTapAsking(const PoolPlan& plan, const Taps& a, const Taps& b,
                      const Taps& c, int64_t channels, CpuTeam* team,
                      const Fn& fn) {
  const int64_t step = std::max<int64_t>(1, kBetweenQuestions / channels);
  GiveUpQuestion question(team);
  for (int64_t i = 0; i < a.count; ++i) {
    const int64_t plane =
        (a.first + i * plan.axes[0].window.dilation) * plan.axes[1].in;
    for (int64_t j = 0; j < b.count; ++j) {
      const int64_t row = (plane + b.first + j * plan.axes[1].window.dilation) *
                              plan.axes[2].in +
                          c.first;
      for (int64_t k = 0; k < c.count;) {
        const int64_t past = std::min(c.count, k + step);
        if (question.Asked((past - k) * channels)) return;
        for (; k < past; ++k) fn(row + k * plan.axes[2].window.dilation);
      }
    }
  }
}

// Calls fn(offset) for each input of a window, in order; not for all once the
// team has given up.
template <typename Fn>
void ForEachTap(const PoolPlan& plan, const Taps& a, const Taps& b,
                const Taps& c, int64_t channels, CpuTeam* team, const Fn& fn) {
  if (a.count * b.count * c.count > kBetweenQuestions / channels) {
    ForEachTapAsking(plan, a, b, c, channels, team, fn);
    return;
  }
  for (int64_t i = 0; i < a.count; ++i) {
    const int64_t plane =
        (a.first + i * plan.axes[0].window.dilation) * plan.axes[1].in;
    for (int64_t j = 0; j < b.count; ++j) {
      const int64_t row = (plane + b.first + j * plan.axes[1].window.dilation) *
                              plan.axes[2].in +
                          c.first;
      for (int64_t k = 0; k < c.count; ++k) {
        fn(row + k * plan.axes[2].window.dilation);
      }
    }
  }
}

template <typename T>
T LowestValue() {
  if constexpr (std::is_integral_v<T>) {
    return std::numeric_limits<T>::lowest();
  } else {
    return T(-std::numeric_limits<float>::infinity());
  }
}

template <typename T>
bool IsNan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return static_cast<double>(value) != static_cast<double>(value);
  }
}

// Calls fn(first input element of the plane, output element, taps) for each
// window of each plane. Of channels last, an element is a pixel with `channels`
// values and a plane is an image.
template <typename Fn>
void ForEachPlaneWindow(const PoolPlan& plan, int64_t channels, CpuTeam* team,
                        const Fn& fn) {
  const int64_t in_plane = plan.in_plane();
  const int64_t out_plane = plan.out_plane();
  ForEachPiece(
      plan, plan.planes / channels, channels, team,
      [&](int64_t plane, int64_t begin, int64_t end) {
        ForEachWindow(
            plan, begin, end,
            [&](int64_t i, const Taps& a, const Taps& b, const Taps& c) {
              fn(plane * in_plane, plane * out_plane + i, a, b, c);
            });
      });
}

// Where the index of ONNX's Indices output points: the whole tensor flattened,
// with the spatial axes in row-major order, or column-major.
int64_t MaxIndex(const PoolPlan& plan, int64_t first, int64_t offset) {
  if (plan.column_major) {
    const int64_t x = offset % plan.axes[2].in;
    const int64_t y = offset / plan.axes[2].in % plan.axes[1].in;
    const int64_t z = offset / plan.axes[2].in / plan.axes[1].in;
    offset = z + plan.axes[0].in * (y + plan.axes[1].in * x);
  }
  return first + offset;
}

template <typename T>
void MaxPool(const PoolPlan& plan, const RunArgs& run) {
  const auto* x = static_cast<const T*>(run.inputs[0]);
  auto* y = static_cast<T*>(run.outputs[0]);
  auto* indices =
      static_cast<int64_t*>(run.outputs.size() > 1 ? run.outputs[1] : nullptr);
  ForEachPlaneWindow(
      plan, 1, run.team,
      [&](int64_t first, int64_t i, const Taps& a, const Taps& b,
          const Taps& c) {
        const T* from = x + first;
        T best = LowestValue<T>();
        if (indices == nullptr) {
          // NaN wins: a comparison with it is false.
          ForEachTap(plan, a, b, c, 1, run.team, [&](int64_t offset) {
            const T value = from[offset];
            best = best >= value || IsNan(best) ? best : value;
          });
        } else {
          int64_t where = -1;
          ForEachTap(plan, a, b, c, 1, run.team, [&](int64_t offset) {
            const T value = from[offset];
            if (where < 0 || (!IsNan(best) && !(best >= value))) {
              best = value;
              where = offset;
            }
          });
          indices[i] = where < 0 ? -1 : MaxIndex(plan, first, where);
        }
        y[i] = best;
      });
}

// By how much the sum over a window is divided; 0 where it sees padding alone.
double Divisor(const PoolPlan& plan, const Taps& a, const Taps& b,
               const Taps& c) {
  const auto volume = [](int64_t x, int64_t y, int64_t z) {
    return static_cast<double>(x) * static_cast<double>(y) *
           static_cast<double>(z);
  };
  return plan.include_pad ? volume(a.divisor, b.divisor, c.divisor)
                          : volume(a.count, b.count, c.count);
}

// float and the half types are summed up in float, double in double.
template <typename T>
void AveragePool(const PoolPlan& plan, const RunArgs& run) {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto* x = static_cast<const T*>(run.inputs[0]);
  auto* y = static_cast<T*>(run.outputs[0]);
  ForEachPlaneWindow(
      plan, 1, run.team,
      [&](int64_t first, int64_t i, const Taps& a, const Taps& b,
          const Taps& c) {
        Sum sum = 0;
        ForEachTap(plan, a, b, c, 1, run.team, [&](int64_t offset) {
          sum += static_cast<Sum>(x[first + offset]);
        });
        const double divisor = Divisor(plan, a, b, c);
        // A window that sees padding alone averages nothing.
        y[i] = divisor == 0 ? T(Sum{0}) : T(sum / static_cast<Sum>(divisor));
      });
}

// -- Channels last: all channels of a pixel at once ---------------------------

// float alone, as KernelTraits::channels_last says.
bool IsFloat(const NodeInfo& node) {
  return node.input_types[0] == DType::kFloat && node.num_outputs == 1;
}

void MaxPoolChannelsLast(const PoolPlan& plan, int64_t channels,
                         const RunArgs& run) {
  const auto* x = static_cast<const float*>(run.inputs[0]);
  auto* y = static_cast<float*>(run.outputs[0]);
  ForEachPlaneWindow(
      plan, channels, run.team,
      [&](int64_t image, int64_t pixel, const Taps& a, const Taps& b,
          const Taps& c) {
        float* __restrict best = y + pixel * channels;
        std::fill_n(best, channels, LowestValue<float>());
        ForEachTap(plan, a, b, c, channels, run.team, [&](int64_t offset) {
          const float* __restrict from = x + (image + offset) * channels;
          for (int64_t k = 0; k < channels; ++k) {
            best[k] = scalar::Maximum(best[k], from[k]);
          }
        });
      });
}

void AveragePoolChannelsLast(const PoolPlan& plan, int64_t channels,
                             const RunArgs& run) {
  const auto* x = static_cast<const float*>(run.inputs[0]);
  auto* y = static_cast<float*>(run.outputs[0]);
  ForEachPlaneWindow(
      plan, channels, run.team,
      [&](int64_t image, int64_t pixel, const Taps& a, const Taps& b,
          const Taps& c) {
        float* __restrict sum = y + pixel * channels;
        std::fill_n(sum, channels, 0.0f);
        ForEachTap(plan, a, b, c, channels, run.team, [&](int64_t offset) {
          const float* __restrict from = x + (image + offset) * channels;
          for (int64_t k = 0; k < channels; ++k) {
            sum[k] += from[k];
          }
        });
        const double divisor = Divisor(plan, a, b, c);
        if (divisor == 0) return;
        for (int64_t k = 0; k < channels; ++k) {
          sum[k] /= static_cast<float>(divisor);
        }
      });
}

// The mean of each channel of an image, in double.
void MeanPixel(const float* __restrict x, int64_t pixels, int64_t channels,
               CpuTeam* team, float* __restrict y) {
  constexpr int64_t kBlock = 64;
  constexpr int64_t kPixels = kBetweenQuestions / kBlock;
  double sums[kBlock];
  GiveUpQuestion question(team);
  for (int64_t first = 0; first < channels; first += kBlock) {
    const int64_t n = std::min(kBlock, channels - first);
    std::fill_n(sums, n, 0.0);
    for (int64_t p = 0; p < pixels;) {
      const int64_t past = std::min(pixels, p + kPixels);
      if (question.Asked((past - p) * n)) return;
      for (; p < past; ++p) {
        const float* from = x + p * channels + first;
        for (int64_t k = 0; k < n; ++k) sums[k] += static_cast<double>(from[k]);
      }
    }
    for (int64_t k = 0; k < n; ++k) {
      y[first + k] = static_cast<float>(sums[k] / static_cast<double>(pixels));
    }
  }
}

// In double, from 8 partial sums, so that it vectorizes.
template <typename T>
T Mean(const T* x, int64_t n, CpuTeam* team) {
  double sums[8] = {};
  int64_t i = 0;
  GiveUpQuestion question(team);
  while (i + 8 <= n) {
    const int64_t past = std::min(n, i + kBetweenQuestions);
    if (question.Asked(past - i)) return T{};
    for (; i + 8 <= past; i += 8) {
      for (int64_t l = 0; l < 8; ++l) sums[l] += static_cast<double>(x[i + l]);
    }
  }
  for (; i < n; ++i) sums[i % 8] += static_cast<double>(x[i]);
  const double sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) +
                     ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  const double mean = sum / static_cast<double>(n);
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(mean);
  } else {
    return T(scalar::ToHalfSource(mean));
  }
}

constexpr TypeSet kMaxPoolTypes =
    kFloatTypes | TypeSet{DType::kInt8, DType::kUint8};
using MaxPoolTypeList =
    Join<FloatTypeList, HalfTypeList, TypeList<int8_t, uint8_t>>;
using AverageTypeList = Join<FloatTypeList, HalfTypeList>;

// pool(tag, plan, run) computes elements of type decltype(tag)::Type.
// channels_last(plan, channels, run) does so for float with channels last.
template <typename Types, typename Pool, typename ChannelsLast>
std::unique_ptr<const Kernel> MakePoolKernel(const NodeInfo& node, Pool pool,
                                             ChannelsLast channels_last) {
  return MakeKernel([node, pool, channels_last](
                        const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    WEIR_ASSIGN_OR_RETURN(const PoolPlan plan, MakePoolPlan(node, args));
    if (args.inputs[0].layout == Layout::kChannelsLast) {
      return RunFunction(
          [channels_last, plan,
           channels = args.inputs[0].dims[1]](const RunArgs& run) {
            channels_last(plan, channels, run);
            return absl::OkStatus();
          });
    }
    const DType dtype = args.inputs[0].dtype;
    return RunFunction([pool, plan, dtype](const RunArgs& run) {
      DispatchType(Types(), dtype, [&](auto tag) { pool(tag, plan, run); });
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeMaxPoolKernel(
    const NodeInfo& node, Device&) {
  return MakePoolKernel<MaxPoolTypeList>(
      node,
      [](auto tag, const PoolPlan& plan, const RunArgs& run) {
        MaxPool<typename decltype(tag)::Type>(plan, run);
      },
      MaxPoolChannelsLast);
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeAveragePoolKernel(
    const NodeInfo& node, Device&) {
  return MakePoolKernel<AverageTypeList>(
      node,
      [](auto tag, const PoolPlan& plan, const RunArgs& run) {
        AveragePool<typename decltype(tag)::Type>(plan, run);
      },
      AveragePoolChannelsLast);
}

absl::StatusOr<std::unique_ptr<const Kernel>> MakeGlobalAveragePoolKernel(
    const NodeInfo&, Device&) {
  return MakeKernel([](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    const DType dtype = args.inputs[0].dtype;
    const int64_t planes = args.outputs[0].elements;
    const int64_t plane = planes == 0 ? 0 : args.inputs[0].elements / planes;
    if (args.inputs[0].layout == Layout::kChannelsLast) {
      const int64_t channels = args.inputs[0].dims[1];
      return RunFunction([planes, plane, channels](const RunArgs& run) {
        const auto* x = static_cast<const float*>(run.inputs[0]);
        auto* y = static_cast<float*>(run.outputs[0]);
        ParallelFor(run.team, planes / channels, [&](int64_t image) {
          MeanPixel(x + image * plane * channels, plane, channels, run.team,
                    y + image * channels);
        });
        return absl::OkStatus();
      });
    }
    return RunFunction([dtype, planes, plane](const RunArgs& run) {
      DispatchType(AverageTypeList(), dtype, [&](auto tag) {
        using T = typename decltype(tag)::Type;
        const auto* x = static_cast<const T*>(run.inputs[0]);
        auto* y = static_cast<T*>(run.outputs[0]);
        ParallelRange(run.team, planes,
                      std::max<int64_t>(1, 65536 / std::max<int64_t>(plane, 1)),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t p = begin; p < end; ++p) {
                          y[p] = Mean(x + p * plane, plane, run.team);
                        }
                      });
      });
      return absl::OkStatus();
    });
  });
}

std::vector<AttributeDef> WindowAttributes() {
  return {{"auto_pad", AttributeType::kString, false,
           "NOTSET (default: pads), VALID, SAME_UPPER or SAME_LOWER."},
          {"ceil_mode", AttributeType::kInt, false,
           "1: also windows that reach over the end; default 0."},
          {"dilations", AttributeType::kInts, false, "Per axis, default 1."},
          {"kernel_shape", AttributeType::kInts, true, "Per axis."},
          {"pads", AttributeType::kInts, false,
           "All begins, then all ends; default 0, not negative."},
          {"strides", AttributeType::kInts, false, "Per axis, default 1."}};
}

}  // namespace

absl::StatusOr<Pooling> PoolingOf(const NodeInfo& node, const Dims& dims) {
  WEIR_ASSIGN_OR_RETURN(
      const SpatialWindow parsed,
      ParseSpatialWindow(node, static_cast<int>(dims.size()) - 2, {}));
  Pooling pooling;
  pooling.window = ResolvePads(parsed, absl::MakeConstSpan(dims).subspan(2));
  pooling.include_pad = node.attributes.Int("count_include_pad", 0) != 0;
  pooling.column_major = node.attributes.Int("storage_order", 0) != 0;
  return pooling;
}

absl::Status Register_onnx_MaxPool(OpRegistry& registry) {
  OpDef def;
  def.name = "MaxPool";
  def.doc =
      "The largest element of each window over 1 to 3 spatial axes, and "
      "optionally where it lies. NaN is larger than anything.";
  def.inputs = {{.name = "X", .types = kMaxPoolTypes}};
  def.outputs = {{.name = "Y"}, {.name = "Indices", .optional = true}};
  def.attributes = WindowAttributes();
  def.attributes.push_back({"storage_order", AttributeType::kInt, false,
                            "Of Indices: 0 (default) row-major, 1 "
                            "column-major."});
  def.infer = InferPool;
  def.cost = PoolCost;
  return registry.Register(std::move(def), MakeMaxPoolKernel,
                           {.channels_last = IsFloat});
}

absl::Status Register_onnx_AveragePool(OpRegistry& registry) {
  OpDef def;
  def.name = "AveragePool";
  def.doc = "The mean of each window over 1 to 3 spatial axes.";
  def.inputs = {{.name = "X", .types = kFloatTypes}};
  def.outputs = {{.name = "Y"}};
  def.attributes = WindowAttributes();
  def.attributes.push_back(
      {"count_include_pad", AttributeType::kInt, false,
       "1: the padding counts as zeros; default 0: it does not count."});
  def.infer = InferPool;
  def.cost = PoolCost;
  return registry.Register(std::move(def), MakeAveragePoolKernel,
                           {.channels_last = IsFloat});
}

NodeCost GlobalAveragePoolCost(const NodeInfo& node, Pace pace,
                               const PlanArgs& args) {
  NodeCost cost = LinearCost(node, pace, args);
  AddInTurn(pace, args, args.outputs[0].elements, kRowOperations, cost);
  return cost;
}

absl::Status Register_onnx_GlobalAveragePool(OpRegistry& registry) {
  OpDef def;
  def.name = "GlobalAveragePool";
  def.doc =
      "The mean over all spatial axes, which keep size 1 and may not be "
      "empty.";
  def.inputs = {{.name = "X", .types = kFloatTypes}};
  def.outputs = {{.name = "Y"}};
  def.infer = InferGlobalPool;
  def.cost = GlobalAveragePoolCost;
  return registry.Register(std::move(def), MakeGlobalAveragePoolKernel,
                           {.channels_last = IsFloat});
}

}  // namespace weir
