// What Evaluate and Explain check of their requests alike. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/device.h"
#include "kernels/eval/engine.h"
#include "server/rpc/wire_evaluate.h"
#include "server/services/service_context.h"

namespace weir {

// The engine whose device has this name or UUID; empty: the default. NOT_FOUND
// if none has.
absl::StatusOr<Engine*> FindEngine(const ServiceContext& context,
                                   std::string_view device);

// UNIMPLEMENTED unless the program, which is there on `device`, was asked for
// there, or nowhere in particular.
absl::Status CheckPlacement(std::string_view wanted, const DeviceInfo& device);

// INVALID_ARGUMENT for a number that is no v1::Precision; UNIMPLEMENTED (reason
// PRECISION_NOT_ALLOWED) for one that the server does not compute in. Nothing
// asked for is ignored.
absl::Status CheckPrecision(int32_t precision);

// The element type of a tensor. INVALID_ARGUMENT naming `field` if there is
// none; UNIMPLEMENTED for a ragged batch.
absl::StatusOr<DType> CheckSpec(const WireTensorSpec& spec,
                                std::string_view field);

}  // namespace weir
