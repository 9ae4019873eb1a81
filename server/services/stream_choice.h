// Which stream a message asks for: read, checked, and found in the caller's
// space. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/eval/stream_policy.h"
#include "server/spaces/space.h"

namespace weir {

// INVALID_ARGUMENT, with the field of weir.v1.StreamPolicy below
// "stream_policy", for what says nothing or too much.
absl::Status CheckStreamWish(const StreamWish& wish);

// What a checked wish stands for now. `space` null: there is none, and so no
// named stream. Errors have the field: NOT_FOUND, reason STREAM_NOT_FOUND;
// FAILED_PRECONDITION, reason WRONG_DEVICE, if it is not on `engine`;
// INVALID_ARGUMENT for a priority that the device does not have.
absl::StatusOr<StreamPolicy> FindStream(const StreamWish& wish, Space* space,
                                        Engine& engine);

}  // namespace weir
