// What Evaluate, Explain and ModelInfer check of their requests alike. Any
// thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "kernels/device/device.h"
#include "server/models/definition_import.h"
#include "server/rpc/wire/wire_tensor.h"

namespace weir {

// UNIMPLEMENTED unless the program, which is there on `device`, was asked for
// there, or nowhere in particular.
absl::Status CheckPlacement(std::string_view wanted, const DeviceInfo& device);

// INVALID_ARGUMENT for a number that is no v1::Precision; UNIMPLEMENTED (reason
// PRECISION_NOT_ALLOWED) for one that the server does not compute in. Nothing
// asked for is ignored.
absl::Status CheckPrecision(int32_t precision);

// Whether every input has an element type, and none is a ragged batch
// (UNIMPLEMENTED). `spec` is the path of a spec in an input.
absl::Status CheckSpecs(std::span<const WireTensor> inputs,
                        std::string_view spec);

}  // namespace weir
