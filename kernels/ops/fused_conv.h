// The internal operator weir.FusedConv, which kernels/graph/passes/fuse.h makes
// and a device's kernel may take:
//
//   Y = activation(Conv(X, W, B) + R)
//
// Inputs X, W, B (optional), R (optional, of Y's shape); attributes of Conv,
// and "activation": "" (the default), "Relu" or "Clip" between "low" and
// "high", with the meaning of ONNX: NaN passes through. Sums are made in float
// or better and rounded once, in the end, but where cuDNN has no engine that
// adds. R is added after B, but by cuDNN's
// engines, which add B last. KernelTraits::takes says for which types, ranks
// and attributes a device has code; what it does not take stays as the nodes
// that the caller wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

inline constexpr char kFusedConvDomain[] = "weir";
inline constexpr char kFusedConvName[] = "FusedConv";
inline constexpr size_t kFusedConvResidual = 3;
inline constexpr size_t kFusedConvInputs = 4;
inline constexpr std::string_view kFusedConvActivation = "activation";
inline constexpr std::string_view kFusedConvLow = "low";
inline constexpr std::string_view kFusedConvHigh = "high";

// Both of Conv and FusedConv, on every device.

// What becomes of a sum in the end; Conv has none.
struct FusedActivation {
  enum class Kind : uint8_t { kNone, kRelu, kClip };
  Kind kind = Kind::kNone;
  float low = 0, high = 0;  // of kClip
};
WEIR_EXPORT FusedActivation FusedActivationOf(const NodeInfo& node);

// Whether X and Y have channels last. Of one pixel a value counts as row-major,
// and is both: the other one tells.
WEIR_EXPORT bool IsChannelsLast(const PlanArgs& args);

// INVALID_ARGUMENT if there is an R of another shape than Y's.
WEIR_EXPORT absl::Status CheckResidual(const PlanArgs& args);

}  // namespace weir
