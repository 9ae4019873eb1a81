// What nodes of weir.Spin and weir.Fault say, read once for the kernels of both
// devices. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// How long a Spin keeps its stream busy. INVALID_ARGUMENT beyond a minute.
WEIR_EXPORT absl::StatusOr<Nanos> SpinTimeOf(const NodeInfo& node);

// How a Fault fails: reported as an injected fault or as an index out of range,
// or so that the device is lost.
enum class FaultMode : uint8_t { kReport, kIndex, kIllegalAddress, kTrap };
// INVALID_ARGUMENT for a mode that is none of them.
WEIR_EXPORT absl::StatusOr<FaultMode> FaultModeOf(const NodeInfo& node);

}  // namespace weir
