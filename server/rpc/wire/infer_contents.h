// inference.InferTensorContents: the elements of an input that come as numbers
// of a protobuf list. Pure functions, any thread.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/tensor/dtype.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"

namespace weir {

// Writes the elements of `contents` as they lie in memory to `out`, which has
// room for `count` of them (StringRefs into slices or arena for kString).
// INVALID_ARGUMENT unless exactly `count` stand in the field of this type, all
// in range, and none in another.
absl::Status DecodeContents(const ByteView& contents, DType dtype, size_t count,
                            CallArena* arena, std::byte* out);

}  // namespace weir
