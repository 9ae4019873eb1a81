#include "kernels/ops/spatial_window.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace weir {
namespace {

// Keeps every product below in 64 bits.
constexpr int64_t kMaxAttribute = int64_t{1} << 30;
constexpr int64_t kMaxAxis = int64_t{1} << 62;

absl::StatusOr<std::vector<int64_t>> ReadList(const NodeInfo& node,
                                              std::string_view name,
                                              size_t length, int64_t fallback,
                                              int64_t least) {
  std::vector<int64_t> values = node.attributes.Ints(name);
  const absl::string_view shown(name.data(), name.size());
  if (values.empty()) return std::vector<int64_t>(length, fallback);
  if (values.size() != length) {
    return absl::InvalidArgumentError(
        absl::StrCat(shown, " has ", values.size(), " values, not ", length));
  }
  for (const int64_t value : values) {
    if (value < least || value > kMaxAttribute) {
      return absl::InvalidArgumentError(absl::StrCat(shown, " of ", value,
                                                     " is outside [", least,
                                                     ", ", kMaxAttribute, "]"));
    }
  }
  return values;
}

absl::StatusOr<SpatialWindow::AutoPad> ReadAutoPad(const NodeInfo& node) {
  const std::string text = node.attributes.String("auto_pad", "NOTSET");
  if (text == "NOTSET" || text.empty()) return SpatialWindow::AutoPad::kNotSet;
  if (text == "VALID") return SpatialWindow::AutoPad::kValid;
  if (text == "SAME_UPPER") return SpatialWindow::AutoPad::kSameUpper;
  if (text == "SAME_LOWER") return SpatialWindow::AutoPad::kSameLower;
  return absl::InvalidArgumentError(
      absl::StrCat("auto_pad ", QuoteStart(text),
                   " is none of NOTSET, VALID, SAME_UPPER and SAME_LOWER"));
}

bool IsSame(SpatialWindow::AutoPad pad) {
  return pad == SpatialWindow::AutoPad::kSameUpper ||
         pad == SpatialWindow::AutoPad::kSameLower;
}

}  // namespace

absl::StatusOr<SpatialWindow> ParseSpatialWindow(
    const NodeInfo& node, int spatial_rank,
    absl::Span<const int64_t> kernel_shape) {
  if (spatial_rank < 1) {
    return absl::InvalidArgumentError("no spatial axes; there must be one");
  }
  if (spatial_rank > kMaxSpatialRank) {
    return absl::UnimplementedError(absl::StrCat(
        spatial_rank, " spatial axes; weir takes 1 to ", kMaxSpatialRank));
  }
  const auto rank = static_cast<size_t>(spatial_rank);
  WEIR_ASSIGN_OR_RETURN(std::vector<int64_t> kernel,
                        ReadList(node, "kernel_shape", rank, 0, 1));
  if (!node.attributes.Has("kernel_shape")) {
    if (kernel_shape.empty()) {
      return absl::InvalidArgumentError("kernel_shape is missing");
    }
    kernel.assign(kernel_shape.begin(), kernel_shape.end());
  }
  if (!kernel_shape.empty() &&
      !std::equal(kernel.begin(), kernel.end(), kernel_shape.begin(),
                  kernel_shape.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel_shape ", DimsString(kernel),
                     " differs from the weights' ", DimsString(kernel_shape)));
  }
  for (const int64_t size : kernel) {
    if (size < 1 || size > kMaxAttribute) {
      return absl::InvalidArgumentError(absl::StrCat(
          "kernel ", DimsString(kernel), " is empty or too large"));
    }
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> strides,
                        ReadList(node, "strides", rank, 1, 1));
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> dilations,
                        ReadList(node, "dilations", rank, 1, 1));
  WEIR_ASSIGN_OR_RETURN(const std::vector<int64_t> pads,
                        ReadList(node, "pads", 2 * rank, 0, 0));
  SpatialWindow window;
  WEIR_ASSIGN_OR_RETURN(window.auto_pad, ReadAutoPad(node));
  window.ceil_mode = node.attributes.Int("ceil_mode", 0) != 0;
  const bool explicit_pads = window.auto_pad == SpatialWindow::AutoPad::kNotSet;
  for (size_t i = 0; i < rank; ++i) {
    window.axes.push_back({.kernel = kernel[i],
                           .stride = strides[i],
                           .dilation = dilations[i],
                           .pad_begin = explicit_pads ? pads[i] : 0,
                           .pad_end = explicit_pads ? pads[rank + i] : 0});
  }
  return window;
}

absl::StatusOr<Dim> OutputSize(const SpatialWindow& window, int axis,
                               Dim input) {
  const WindowAxis& a = window.axes[static_cast<size_t>(axis)];
  if (IsSame(window.auto_pad)) {
    if (a.stride == 1) return input;
    return (input + Dim(a.stride - 1)) / Dim(a.stride);
  }
  const int64_t grow = a.pad_begin + a.pad_end - a.reach();
  if (!input.known()) {
    if (a.stride == 1 && grow == -1) return input;
    return Dim();
  }
  // Only a tensor without elements has such an axis.
  if (input.value() > kMaxAxis) {
    return absl::InvalidArgumentError(absl::StrCat(
        "spatial axis ", axis, " of ", input.value(), " is too long"));
  }
  const int64_t slack = input.value() + grow;
  // The only window of ceil_mode may reach over the end.
  const bool over_the_end = window.ceil_mode && slack < 0 && slack > -a.stride;
  if (over_the_end && input.value() + a.pad_begin > 0) return Dim(1);
  if (slack < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a window of ", a.reach(), " does not fit into spatial axis ", axis,
        " of ", input.value(), " with pads ", a.pad_begin, " and ", a.pad_end));
  }
  int64_t steps = slack / a.stride;
  if (window.ceil_mode) {
    if (slack % a.stride != 0) ++steps;
    // As ONNX has it: the last window, and no other, goes if it would begin in
    // the padding at the end.
    if (steps > 0 && steps * a.stride >= input.value() + a.pad_begin) --steps;
  }
  return Dim(steps + 1);
}

SpatialWindow ResolvePads(const SpatialWindow& window,
                          absl::Span<const int64_t> input) {
  SpatialWindow resolved = window;
  resolved.auto_pad = SpatialWindow::AutoPad::kNotSet;
  if (!IsSame(window.auto_pad)) return resolved;
  for (size_t i = 0; i < resolved.axes.size(); ++i) {
    WindowAxis& a = resolved.axes[i];
    const int64_t windows = (input[i] + a.stride - 1) / a.stride;
    const int64_t total =
        std::max<int64_t>(0, (windows - 1) * a.stride + a.reach() - input[i]);
    a.pad_begin = window.auto_pad == SpatialWindow::AutoPad::kSameUpper
                      ? total / 2
                      : total - total / 2;
    a.pad_end = total - a.pad_begin;
  }
  return resolved;
}

SpatialAxes SpatialAxesOf(const SpatialWindow& window, const Dims& in,
                          const Dims& out) {
  SpatialAxes axes;
  const size_t rank = window.axes.size();
  for (size_t d = 0; d < rank; ++d) {
    axes[axes.size() - rank + d] = {in[d + 2], out[d + 2], window.axes[d]};
  }
  return axes;
}

}  // namespace weir
