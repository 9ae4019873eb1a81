// What Evaluate and Explain check of their requests alike. Pure functions, any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "server/rpc/wire/wire_tensor.h"

namespace weir {

// UNIMPLEMENTED unless the program, which is there on `device`, was asked for
// there, or nowhere in particular.
absl::Status CheckPlacement(std::string_view wanted, const DeviceInfo& device);

// INVALID_ARGUMENT for a number that is no v1::Precision; UNIMPLEMENTED (reason
// PRECISION_NOT_ALLOWED) for one that the server does not compute in. Nothing
// asked for is ignored.
absl::Status CheckPrecision(int32_t precision);

// INVALID_ARGUMENT unless every input has an element type and a rank of at most
// kMaxRank; UNIMPLEMENTED for a ragged batch. `spec` is its path in an input.
absl::Status CheckSpecs(std::span<const WireTensor> inputs,
                        std::string_view spec);

}  // namespace weir
