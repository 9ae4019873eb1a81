// What Evaluate and Explain check of their requests alike. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "server/rpc/wire_evaluate.h"

namespace weir {

// NOT_FOUND unless `name` is the device's name or UUID, or empty.
absl::Status CheckDevice(std::string_view name, const DeviceInfo& device);

// INVALID_ARGUMENT for a number that is no v1::Precision; UNIMPLEMENTED (reason
// PRECISION_NOT_ALLOWED) for one that the server does not compute in. Nothing
// asked for is ignored.
absl::Status CheckPrecision(int32_t precision);

// The element type of a tensor. INVALID_ARGUMENT naming `field` if there is
// none; UNIMPLEMENTED for a ragged batch.
absl::StatusOr<DType> CheckSpec(const WireTensorSpec& spec,
                                std::string_view field);

}  // namespace weir
