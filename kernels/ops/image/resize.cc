#include "kernels/ops/image/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/image/resize.cc"
#include <hwy/foreach_target.h>
// Keep this order: each target includes this file again.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace weir::image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
hn::Vec<D> LoadAsFloat(D, const float* from) {
  return hn::LoadU(D(), from);
}

template <class D>
hn::Vec<D> LoadAsFloat(D d, const uint8_t* from) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::Rebind<int32_t, D> integers;
  return hn::ConvertTo(d, hn::PromoteTo(integers, hn::LoadU(bytes, from)));
}

template <class V>
void StoreFloats(V value, float* to) {
  hn::StoreU(value, hn::DFromV<V>(), to);
}

// Half up; the clamp keeps NaN and infinities out of the conversion.
template <class V>
void StoreFloats(V value, uint8_t* to) {
  const hn::DFromV<V> d;
  const hn::Rebind<int32_t, decltype(d)> integers;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  const V rounded = hn::Add(value, hn::Set(d, 0.5f));
  const V clamped = hn::Min(hn::Max(rounded, hn::Zero(d)), hn::Set(d, 255.0f));
  hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(integers, clamped)), bytes, to);
}

// A pixel of weight 0 is passed over, as it may be infinite or NaN; bytes are
// neither.
template <typename In>
bool PassesOver(float weight) {
  return std::is_same_v<In, float> && weight == 0;
}

// row[i] = sum over t of weights[t] * first_row[t * stride + i].
template <typename In>
void BlendRows(const In* first_row, int64_t stride, const float* weights,
               int64_t taps, int64_t count, float* row) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  // Two accumulators hide the latency of the multiply-add.
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    auto low = hn::Zero(d);
    auto high = hn::Zero(d);
    const In* from = first_row + i;
    for (int64_t t = 0; t < taps; ++t, from += stride) {
      if (PassesOver<In>(weights[t])) continue;
      const auto weight = hn::Set(d, weights[t]);
      low = hn::MulAdd(weight, LoadAsFloat(d, from), low);
      high = hn::MulAdd(weight, LoadAsFloat(d, from + lanes), high);
    }
    hn::StoreU(low, d, row + i);
    hn::StoreU(high, d, row + i + lanes);
  }
  for (; i + lanes <= count; i += lanes) {
    auto sum = hn::Zero(d);
    const In* from = first_row + i;
    for (int64_t t = 0; t < taps; ++t, from += stride) {
      if (PassesOver<In>(weights[t])) continue;
      sum = hn::MulAdd(hn::Set(d, weights[t]), LoadAsFloat(d, from), sum);
    }
    hn::StoreU(sum, d, row + i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < count; ++i) {
    auto sum = hn::Zero(one);
    const In* from = first_row + i;
    for (int64_t t = 0; t < taps; ++t, from += stride) {
      if (PassesOver<In>(weights[t])) continue;
      const auto value = hn::Set(one, static_cast<float>(*from));
      sum = hn::MulAdd(hn::Set(one, weights[t]), value, sum);
    }
    row[i] = hn::GetLane(sum);
  }
}

#if HWY_TARGET != HWY_SCALAR
// One pixel of 3 or 4 channels is one vector; a fourth lane that belongs to the
// next pixel is computed and dropped. `row` has one float of padding; it was
// made of pixels of type In.
template <int kChannels, typename In, typename Out>
void BlendPixelsAsVectors(const float* row, const AxisWeights& x,
                          int64_t first_column, Out* out) {
  const hn::FixedTag<float, 4> d;
  const int64_t taps = x.taps;
  const float* weights = x.weights.data();
  const int64_t width = x.size();
  for (int64_t i = 0; i < width; ++i, weights += taps) {
    const float* from =
        row + (x.first[static_cast<size_t>(i)] - first_column) * kChannels;
    auto sum = hn::Zero(d);
    for (int64_t t = 0; t < taps; ++t) {
      if (PassesOver<In>(weights[t])) continue;
      sum = hn::MulAdd(hn::Set(d, weights[t]),
                       hn::LoadU(d, from + t * kChannels), sum);
    }
    Out* to = out + i * kChannels;
    if (kChannels == 4 || i + 1 < width) {
      StoreFloats(sum, to);
    } else {
      Out last[4];
      StoreFloats(sum, last);
      std::copy_n(last, kChannels, to);
    }
  }
}
#endif

template <typename In, typename Out>
void BlendPixels(const float* row, const AxisWeights& x, int64_t first_column,
                 int64_t channels, Out* out) {
  const hn::CappedTag<float, 1> one;
  const float* weights = x.weights.data();
  for (int64_t i = 0; i < x.size(); ++i, weights += x.taps) {
    const float* from =
        row + (x.first[static_cast<size_t>(i)] - first_column) * channels;
    for (int64_t c = 0; c < channels; ++c) {
      auto sum = hn::Zero(one);
      for (int64_t t = 0; t < x.taps; ++t) {
        if (PassesOver<In>(weights[t])) continue;
        sum = hn::MulAdd(hn::Set(one, weights[t]),
                         hn::Set(one, from[t * channels + c]), sum);
      }
      StoreFloats(sum, out + i * channels + c);
    }
  }
}

template <typename In, typename Out>
void BlendRowInto(const float* row, const AxisWeights& x, int64_t first_column,
                  int64_t channels, Out* out) {
#if HWY_TARGET != HWY_SCALAR
  if (channels == 3) {
    return BlendPixelsAsVectors<3, In>(row, x, first_column, out);
  }
  if (channels == 4) {
    return BlendPixelsAsVectors<4, In>(row, x, first_column, out);
  }
#endif
  BlendPixels<In>(row, x, first_column, channels, out);
}

template <typename In, typename Out>
void ResizeLinear(const ResizePlan& plan, const ImageView<const In>& in,
                  const ImageView<Out>& out, float* row) {
  const AxisWeights& y = plan.y();
  const AxisWindow columns = plan.source_columns();
  const int64_t count = (columns.end - columns.begin) * in.channels;
  const AxisWindow rows = plan.rows();
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const In* first_row =
        in.Row(y.first[static_cast<size_t>(i)]) + columns.begin * in.channels;
    BlendRows(first_row, in.row_stride, y.weights.data() + i * y.taps, y.taps,
              count, row);
    BlendRowInto<In>(row, plan.x(), columns.begin, in.channels,
                     out.Row(i - rows.begin));
  }
}

void ResizeLinearBytesToBytes(const ResizePlan& plan,
                              const ImageView<const uint8_t>& in,
                              const ImageView<uint8_t>& out, float* row) {
  ResizeLinear(plan, in, out, row);
}
void ResizeLinearBytesToFloats(const ResizePlan& plan,
                               const ImageView<const uint8_t>& in,
                               const ImageView<float>& out, float* row) {
  ResizeLinear(plan, in, out, row);
}
void ResizeLinearFloatsToBytes(const ResizePlan& plan,
                               const ImageView<const float>& in,
                               const ImageView<uint8_t>& out, float* row) {
  ResizeLinear(plan, in, out, row);
}
void ResizeLinearFloatsToFloats(const ResizePlan& plan,
                                const ImageView<const float>& in,
                                const ImageView<float>& out, float* row) {
  ResizeLinear(plan, in, out, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir::image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::image {
namespace {

HWY_EXPORT(ResizeLinearBytesToBytes);
HWY_EXPORT(ResizeLinearBytesToFloats);
HWY_EXPORT(ResizeLinearFloatsToBytes);
HWY_EXPORT(ResizeLinearFloatsToFloats);

// A vector load of the last pixel of 3 channels reads one float beyond it.
constexpr int64_t kRowPadding = 1;

template <typename Out, typename In>
Out ConvertPixel(In value) {
  if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, uint8_t>) {
    if (!(value > 0)) return 0;
    return static_cast<uint8_t>(std::min(value + 0.5f, 255.0f));
  } else {
    return static_cast<Out>(value);
  }
}

template <typename In, typename Out>
void ResizeNearest(const ResizePlan& plan, const ImageView<const In>& in,
                   const ImageView<Out>& out) {
  const int64_t* columns = plan.x().first.data();
  for (int64_t y = 0; y < out.height; ++y) {
    const In* from_row =
        in.Row(plan.y().first[static_cast<size_t>(plan.rows().begin + y)]);
    Out* to = out.Row(y);
    for (int64_t x = 0; x < out.width; ++x) {
      const In* from = from_row + columns[x] * in.channels;
      for (int64_t c = 0; c < in.channels; ++c) {
        *to++ = ConvertPixel<Out>(from[c]);
      }
    }
  }
}

AxisWindow SourceSpan(const AxisWeights& axis) {
  const auto [low, high] =
      std::minmax_element(axis.first.begin(), axis.first.end());
  return {*low, *high + axis.taps};
}

}  // namespace

ResizePlan::ResizePlan(const ResizeGeometry& geometry,
                       const ResizeFilter& filter)
    : in_height_(geometry.y.in_size),
      in_width_(geometry.x.in_size),
      interpolation_(filter.interpolation),
      y_(std::make_shared<const AxisWeights>(
          MakeAxisWeights(geometry.y, filter, {0, geometry.y.out_size}))),
      x_(std::make_shared<const AxisWeights>(
          MakeAxisWeights(geometry.x, filter, {0, geometry.x.out_size}))),
      rows_{0, y_->size()},
      source_columns_(SourceSpan(*x_)) {}

ResizePlan ResizePlan::Rows(AxisWindow rows) const {
  ResizePlan part = *this;
  part.rows_ = {rows_.begin + rows.begin, rows_.begin + rows.end};
  return part;
}

ResizePlan ResizePlan::Create(const ResizeGeometry& geometry,
                              const ResizeFilter& filter) {
  return ResizePlan(geometry, filter);
}

int64_t ResizePlan::ScratchFloats(int64_t channels) const {
  if (interpolation_ == Interpolation::kNearest) return 0;
  return (source_columns_.end - source_columns_.begin) * channels + kRowPadding;
}

template <typename In, typename Out>
absl::Status Resize(const ResizePlan& plan, ImageView<const In> in,
                    ImageView<Out> out, std::span<float> scratch) {
  if (in.height != plan.in_height() || in.width != plan.in_width() ||
      out.height != plan.out_height() || out.width != plan.out_width() ||
      in.channels != out.channels || in.channels <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resize planned from ", plan.in_width(), " x ", plan.in_height(),
        " to ", plan.out_width(), " x ", plan.out_height(), ", asked from ",
        in.width, " x ", in.height, " x ", in.channels, " to ", out.width,
        " x ", out.height, " x ", out.channels));
  }
  if (static_cast<int64_t>(scratch.size()) < plan.ScratchFloats(in.channels)) {
    return absl::InvalidArgumentError(
        absl::StrCat("resize needs ", plan.ScratchFloats(in.channels),
                     " floats of scratch memory, not ", scratch.size()));
  }
  if (plan.interpolation() == Interpolation::kNearest) {
    ResizeNearest(plan, in, out);
    return absl::OkStatus();
  }
  constexpr bool kFromBytes = std::is_same_v<In, uint8_t>;
  constexpr bool kToBytes = std::is_same_v<Out, uint8_t>;
  // The padding is loaded, never used; it must not be uninitialized memory.
  scratch[static_cast<size_t>(plan.ScratchFloats(in.channels) - 1)] = 0;
  float* row = scratch.data();
  if constexpr (kFromBytes && kToBytes) {
    HWY_DYNAMIC_DISPATCH(ResizeLinearBytesToBytes)(plan, in, out, row);
  } else if constexpr (kFromBytes) {
    HWY_DYNAMIC_DISPATCH(ResizeLinearBytesToFloats)(plan, in, out, row);
  } else if constexpr (kToBytes) {
    HWY_DYNAMIC_DISPATCH(ResizeLinearFloatsToBytes)(plan, in, out, row);
  } else {
    HWY_DYNAMIC_DISPATCH(ResizeLinearFloatsToFloats)(plan, in, out, row);
  }
  return absl::OkStatus();
}

template absl::Status Resize(const ResizePlan&, ImageView<const uint8_t>,
                             ImageView<uint8_t>, std::span<float>);
template absl::Status Resize(const ResizePlan&, ImageView<const uint8_t>,
                             ImageView<float>, std::span<float>);
template absl::Status Resize(const ResizePlan&, ImageView<const float>,
                             ImageView<uint8_t>, std::span<float>);
template absl::Status Resize(const ResizePlan&, ImageView<const float>,
                             ImageView<float>, std::span<float>);

}  // namespace weir::image
#endif  // HWY_ONCE
