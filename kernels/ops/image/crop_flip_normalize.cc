#include "kernels/ops/image/crop_flip_normalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ops/image/crop_flip_normalize.cc"
#include <hwy/foreach_target.h>
// Keep this order: each target includes this file again.
#include <hwy/highway.h>

#ifndef WEIR_IMAGE_CHANNEL_TERMS
#define WEIR_IMAGE_CHANNEL_TERMS
namespace weir::image {

// x -> (x - mean) * factor + shift.
struct ChannelTerms {
  float mean;
  float factor;
  float shift;
};

}  // namespace weir::image
#endif

HWY_BEFORE_NAMESPACE();
namespace weir::image {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
hn::Vec<D> Apply(D d, hn::Vec<D> value, const ChannelTerms& terms) {
  return hn::MulAdd(hn::Sub(value, hn::Set(d, terms.mean)),
                    hn::Set(d, terms.factor), hn::Set(d, terms.shift));
}

// The tail uses vectors of one lane, so that a pixel's value does not depend on
// where in the row it stands.
inline float ApplyOne(float value, const ChannelTerms& terms) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(Apply(d, hn::Set(d, value), terms));
}

template <class D>
hn::Vec<D> ToFloat(D, hn::Vec<D> value) {
  return value;
}

template <class D>
hn::Vec<D> ToFloat(D d, hn::Vec<hn::Rebind<uint8_t, D>> value) {
  const hn::Rebind<int32_t, D> integers;
  return hn::ConvertTo(d, hn::PromoteTo(integers, value));
}

// One row of 3 channels into three planes.
template <typename T>
void RowOf3(const T* from, int64_t width, bool mirror,
            const ChannelTerms* terms, float* const* planes) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t x = 0;
  for (; x + lanes <= width; x += lanes) {
    hn::Vec<decltype(narrow)> raw[3];
    hn::LoadInterleaved3(narrow, from + x * 3, raw[0], raw[1], raw[2]);
    for (int c = 0; c < 3; ++c) {
      const auto value = Apply(d, ToFloat(d, raw[c]), terms[c]);
      if (mirror) {
        hn::StoreU(hn::Reverse(d, value), d, planes[c] + width - lanes - x);
      } else {
        hn::StoreU(value, d, planes[c] + x);
      }
    }
  }
  for (; x < width; ++x) {
    const int64_t target = mirror ? width - 1 - x : x;
    for (int c = 0; c < 3; ++c) {
      planes[c][target] =
          ApplyOne(static_cast<float>(from[x * 3 + c]), terms[c]);
    }
  }
}

template <typename T>
void RowOfAny(const T* from, int64_t width, int64_t channels, bool mirror,
              const ChannelTerms* terms, float* to, int64_t plane) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t x = 0; x < width; ++x) {
      const int64_t target = mirror ? width - 1 - x : x;
      to[c * plane + target] =
          ApplyOne(static_cast<float>(from[x * channels + c]), terms[c]);
    }
  }
}

template <typename T>
void ToPlanes(const ImageView<const T>& in, bool horizontal, bool vertical,
              const ChannelTerms* terms, const PlanesView& planes) {
  const int64_t plane = planes.plane_stride;
  for (int64_t y = 0; y < in.height; ++y) {
    const int64_t target = vertical ? in.height - 1 - y : y;
    float* to = planes.data + target * planes.row_stride;
    if (in.channels == 3) {
      float* rows[3] = {to, to + plane, to + 2 * plane};
      RowOf3(in.Row(y), in.width, horizontal, terms, rows);
    } else {
      RowOfAny(in.Row(y), in.width, in.channels, horizontal, terms, to, plane);
    }
  }
}

// `mean`, `factor`: one value for each of `count` elements of a row.
template <typename T>
void NormalizeRow(const T* from, int64_t count, const float* mean,
                  const float* factor, float shift, float* to) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<T, decltype(d)> narrow;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto offset = hn::Set(d, shift);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto value = ToFloat(d, hn::LoadU(narrow, from + i));
    const auto centered = hn::Sub(value, hn::LoadU(d, mean + i));
    hn::StoreU(hn::MulAdd(centered, hn::LoadU(d, factor + i), offset), d,
               to + i);
  }
  for (; i < count; ++i) {
    to[i] = ApplyOne(static_cast<float>(from[i]), {mean[i], factor[i], shift});
  }
}

void BytesToPlanes(const ImageView<const uint8_t>& in, bool horizontal,
                   bool vertical, const ChannelTerms* terms,
                   const PlanesView& planes) {
  ToPlanes(in, horizontal, vertical, terms, planes);
}
void FloatsToPlanes(const ImageView<const float>& in, bool horizontal,
                    bool vertical, const ChannelTerms* terms,
                    const PlanesView& planes) {
  ToPlanes(in, horizontal, vertical, terms, planes);
}
void NormalizeRowOfBytes(const uint8_t* from, int64_t count, const float* mean,
                         const float* factor, float shift, float* to) {
  NormalizeRow(from, count, mean, factor, shift, to);
}
void NormalizeRowOfFloats(const float* from, int64_t count, const float* mean,
                          const float* factor, float shift, float* to) {
  NormalizeRow(from, count, mean, factor, shift, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace weir::image
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weir::image {
namespace {

HWY_EXPORT(BytesToPlanes);
HWY_EXPORT(FloatsToPlanes);
HWY_EXPORT(NormalizeRowOfBytes);
HWY_EXPORT(NormalizeRowOfFloats);

constexpr int64_t kSpanElements = 8192;

ChannelTerms TermsOf(const Normalization& normalization, int64_t channel) {
  const auto pick = [channel](std::span<const float> values) {
    return values[values.size() == 1 ? 0 : static_cast<size_t>(channel)];
  };
  return {pick(normalization.mean),
          normalization.scale / pick(normalization.stddev),
          normalization.shift};
}

std::vector<ChannelTerms> AllTerms(const Normalization& normalization,
                                   int64_t channels) {
  std::vector<ChannelTerms> terms;
  terms.reserve(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) {
    terms.push_back(TermsOf(normalization, c));
  }
  return terms;
}

}  // namespace

absl::StatusOr<int64_t> CropAnchor(int64_t size, int64_t crop,
                                   double position) {
  if (crop <= 0 || crop > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("crop of ", crop, " pixels from a side of ", size));
  }
  if (!(position >= 0 && position <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("crop position ", position, " is outside [0, 1]"));
  }
  const double anchor = static_cast<double>(size - crop) * position;
  return static_cast<int64_t>(std::floor(anchor + 0.5));
}

void FlipPixels(ImageView<const uint8_t> in, bool horizontal, bool vertical,
                ImageView<uint8_t> out) {
  const int64_t pixel = in.channels;
  for (int64_t y = 0; y < in.height; ++y) {
    const uint8_t* from = in.Row(y);
    uint8_t* to = out.Row(vertical ? in.height - 1 - y : y);
    if (!horizontal) {
      std::memcpy(to, from, static_cast<size_t>(in.width * pixel));
      continue;
    }
    const auto copy_reversed = [&](auto bytes) {
      const uint8_t* source = from;
      uint8_t* target = to + in.width * pixel;
      for (int64_t x = 0; x < in.width; ++x, source += pixel) {
        target -= pixel;
        std::memcpy(target, source, bytes);
      }
    };
    // A copy of a size known to the compiler is one or two moves.
    switch (pixel) {
      case 1:
        std::reverse_copy(from, from + in.width, to);
        break;
      case 3:
        copy_reversed(std::integral_constant<size_t, 3>());
        break;
      case 4:
        copy_reversed(std::integral_constant<size_t, 4>());
        break;
      case 12:
        copy_reversed(std::integral_constant<size_t, 12>());
        break;
      default:
        copy_reversed(static_cast<size_t>(pixel));
        break;
    }
  }
}

absl::Status CheckNormalization(const Normalization& normalization,
                                int64_t channels) {
  const auto fits = [channels](std::span<const float> values) {
    return values.size() == 1 ||
           static_cast<int64_t>(values.size()) == channels;
  };
  if (!fits(normalization.mean) || !fits(normalization.stddev)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mean has ", normalization.mean.size(), " values and stddev ",
        normalization.stddev.size(), " for ", channels, " channels"));
  }
  for (const float value : normalization.stddev) {
    if (value == 0 || !std::isfinite(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("stddev of ", value, " cannot be divided by"));
    }
    // It would make infinity of a difference, and no number of none.
    if (!std::isfinite(normalization.scale / value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("scale of ", normalization.scale, " by stddev of ",
                       value, " is beyond what floats hold"));
    }
  }
  return absl::OkStatus();
}

template <typename T>
void Normalize(ImageView<const T> in, const Normalization& normalization,
               ImageView<float> out) {
  const int64_t count = in.width * in.channels;
  // The terms of some whole pixels, again and again along a row.
  const int64_t span =
      std::min(count, (kSpanElements / in.channels + 1) * in.channels);
  std::vector<float> mean(static_cast<size_t>(span));
  std::vector<float> factor(static_cast<size_t>(span));
  const std::vector<ChannelTerms> terms = AllTerms(normalization, in.channels);
  for (size_t i = 0; i < mean.size(); i += terms.size()) {
    for (size_t c = 0; c < terms.size(); ++c) {
      mean[i + c] = terms[c].mean;
      factor[i + c] = terms[c].factor;
    }
  }
  for (int64_t y = 0; y < in.height; ++y) {
    for (int64_t i = 0; i < count; i += span) {
      const int64_t n = std::min(span, count - i);
      if constexpr (std::is_same_v<T, uint8_t>) {
        HWY_DYNAMIC_DISPATCH(NormalizeRowOfBytes)
        (in.Row(y) + i, n, mean.data(), factor.data(), normalization.shift,
         out.Row(y) + i);
      } else {
        HWY_DYNAMIC_DISPATCH(NormalizeRowOfFloats)
        (in.Row(y) + i, n, mean.data(), factor.data(), normalization.shift,
         out.Row(y) + i);
      }
    }
  }
}

template <typename T>
void MirrorNormalizeToPlanes(ImageView<const T> in, bool horizontal,
                             bool vertical, const Normalization& normalization,
                             PlanesView planes) {
  const std::vector<ChannelTerms> terms = AllTerms(normalization, in.channels);
  if constexpr (std::is_same_v<T, uint8_t>) {
    HWY_DYNAMIC_DISPATCH(BytesToPlanes)
    (in, horizontal, vertical, terms.data(), planes);
  } else {
    HWY_DYNAMIC_DISPATCH(FloatsToPlanes)
    (in, horizontal, vertical, terms.data(), planes);
  }
}

template void Normalize(ImageView<const uint8_t>, const Normalization&,
                        ImageView<float>);
template void Normalize(ImageView<const float>, const Normalization&,
                        ImageView<float>);
template void MirrorNormalizeToPlanes(ImageView<const uint8_t>, bool, bool,
                                      const Normalization&, PlanesView);
template void MirrorNormalizeToPlanes(ImageView<const float>, bool, bool,
                                      const Normalization&, PlanesView);

}  // namespace weir::image
#endif  // HWY_ONCE
