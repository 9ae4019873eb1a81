#include "kernels/ops/image/resize_geometry.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace weir::image {
namespace {

// Wanted sides with their signs, not rounded yet.
struct WantedSize {
  double y;
  double x;
};

WantedSize WantedSides(double in_y, double in_x, const ResizeSize& size) {
  if (size.shorter != 0) {
    const double scale = size.shorter / std::min(in_y, in_x);
    return {in_y * scale, in_x * scale};
  }
  if (size.longer != 0) {
    const double scale = size.longer / std::max(in_y, in_x);
    return {in_y * scale, in_x * scale};
  }
  if (size.x == 0 && size.y == 0) return {in_y, in_x};
  const double y = size.y != 0 ? size.y : in_y * std::abs(size.x) / in_x;
  const double x = size.x != 0 ? size.x : in_x * std::abs(size.y) / in_y;
  return {y, x};
}

absl::StatusOr<AxisGeometry> MakeAxis(int64_t in_size, double wanted) {
  const double rounded = std::max(1.0, std::round(std::abs(wanted)));
  if (!(rounded <= static_cast<double>(kMaxResizedSide))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "resized side of ", wanted, "; the limit is ", kMaxResizedSide));
  }
  // A wanted size far below one pixel would reach far outside the source.
  constexpr double kMaxGrowth = 10;
  const double growth = std::min(rounded / std::abs(wanted), kMaxGrowth);
  const double in = static_cast<double>(in_size);
  const double covered = in * growth;
  AxisGeometry axis;
  axis.in_size = in_size;
  axis.out_size = static_cast<int64_t>(rounded);
  const double direction = wanted < 0 ? -1 : 1;
  axis.step = direction * covered / rounded;
  axis.origin = in / 2 - direction * covered / 2;
  return axis;
}

bool Given(double side) { return side != 0; }

}  // namespace

absl::StatusOr<ResizeGeometry> MakeResizeGeometry(int64_t in_height,
                                                  int64_t in_width,
                                                  const ResizeSize& size) {
  if (in_height <= 0 || in_width <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot resize an empty picture of ", in_width, " x ", in_height));
  }
  if (std::max(in_height, in_width) > kMaxResizedSide) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot resize a picture of ", in_width, " x ", in_height,
                     "; the largest side is ", kMaxResizedSide));
  }
  for (const double side : {size.x, size.y, size.shorter, size.longer}) {
    if (!std::isfinite(side)) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot resize to a side of ", side));
    }
  }
  const int ways = (Given(size.x) || Given(size.y)) + Given(size.shorter) +
                   Given(size.longer);
  if (ways > 1) {
    return absl::InvalidArgumentError(
        "resize_x and resize_y, resize_shorter, and resize_longer exclude each "
        "other");
  }
  const WantedSize wanted = WantedSides(static_cast<double>(in_height),
                                        static_cast<double>(in_width), size);
  ResizeGeometry geometry;
  WEIR_ASSIGN_OR_RETURN(geometry.y, MakeAxis(in_height, wanted.y));
  WEIR_ASSIGN_OR_RETURN(geometry.x, MakeAxis(in_width, wanted.x));
  return geometry;
}

namespace {

double Radius(const AxisGeometry& axis, const ResizeFilter& filter) {
  return filter.antialias ? std::max(1.0, std::abs(axis.step)) : 1.0;
}

// An open interval of length 2 * radius holds at most this many integers.
int64_t Support(double radius) {
  return static_cast<int64_t>(std::ceil(2 * radius));
}

// What the rounding of a center may leave of 0. The weights of a picture that
// is covered exactly are fractions of twice its sides, and so never as small.
constexpr double kLeastWeight = 0x1p-30;

// The triangle of `radius` around `center`, at pixel k.
struct Triangle {
  double center;
  double radius;

  double At(int64_t k) const {
    const double distance = std::abs(static_cast<double>(k) - center);
    const double share = 1 - distance / radius;
    return share < kLeastWeight ? 0 : share;
  }
  // Of the pixels [begin, end), all on one side of the center and inside the
  // triangle: their mean is that of the first and the last.
  double Sum(int64_t begin, int64_t end) const {
    if (begin >= end) return 0;
    const double mean = (At(begin) + At(end - 1)) / 2;
    return static_cast<double>(end - begin) * mean;
  }
};

}  // namespace

int64_t TapsOf(const AxisGeometry& axis, const ResizeFilter& filter) {
  if (filter.interpolation == Interpolation::kNearest) return 1;
  return std::min(Support(Radius(axis, filter)), axis.in_size);
}

AxisWeights MakeAxisWeights(const AxisGeometry& axis,
                            const ResizeFilter& filter, AxisWindow window) {
  const auto count = static_cast<size_t>(window.end - window.begin);
  AxisWeights result;
  result.first.resize(count);
  const int64_t last = axis.in_size - 1;
  if (filter.interpolation == Interpolation::kNearest) {
    result.taps = 1;
    result.weights.assign(count, 1.0f);
    for (size_t i = 0; i < count; ++i) {
      const auto out =
          static_cast<double>(window.begin) + static_cast<double>(i) + 0.5;
      const double source = std::floor(axis.origin + out * axis.step);
      result.first[i] = static_cast<int64_t>(
          std::clamp(source, 0.0, static_cast<double>(last)));
    }
    return result;
  }

  Triangle filtered = {0, Radius(axis, filter)};
  const int64_t support = Support(filtered.radius);
  result.taps = TapsOf(axis, filter);
  result.weights.assign(count * static_cast<size_t>(result.taps), 0.0f);
  std::vector<double> exact(static_cast<size_t>(result.taps));
  for (size_t i = 0; i < count; ++i) {
    const auto out =
        static_cast<double>(window.begin) + static_cast<double>(i) + 0.5;
    // In units where source pixel k sits at k.
    filtered.center = axis.origin + out * axis.step - 0.5;
    const auto begin =
        static_cast<int64_t>(std::floor(filtered.center - filtered.radius)) + 1;
    const auto past =
        static_cast<int64_t>(std::ceil(filtered.center + filtered.radius));
    const int64_t end = std::min(begin + support, past);
    const int64_t first =
        std::clamp<int64_t>(begin, 0, axis.in_size - result.taps);
    std::fill(exact.begin(), exact.end(), 0.0);
    // The center is no further outside than half a pixel.
    const double before = filtered.Sum(begin, std::min<int64_t>(end, 0));
    const double after = filtered.Sum(std::max(begin, last + 1), end);
    double sum = before + after;
    const int64_t inside = std::min(end, last + 1);
    for (int64_t k = std::max<int64_t>(begin, 0); k < inside; ++k) {
      const double weight = filtered.At(k);
      exact[static_cast<size_t>(k - first)] = weight;
      sum += weight;
    }
    exact[0] += before;
    exact.back() += after;
    result.first[i] = first;
    float* weights = result.weights.data() + i * exact.size();
    for (size_t t = 0; t < exact.size(); ++t) {
      weights[t] = static_cast<float>(exact[t] / sum);
    }
  }
  return result;
}

}  // namespace weir::image
