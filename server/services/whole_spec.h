// The type and shape that a message gives a tensor which the server makes of
// nothing. Pure; any thread.
#pragma once

#include "absl/status/statusor.h"
#include "kernels/tensor/tensor.h"
#include "proto/weir/v1/tensor.pb.h"

namespace weir {

// INVALID_ARGUMENT, with the field ("spec..."), for what is no type, for an
// extent that is not given, and for more bytes than a tensor may have;
// UNIMPLEMENTED for text and for a ragged batch.
absl::StatusOr<TensorSpec> ReadWholeSpec(const v1::TensorSpec& spec);

}  // namespace weir
