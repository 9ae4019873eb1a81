// The form in which text travels as a tensor's bytes: each element its length
// (4 bytes, little-endian) and the bytes, one behind the other. It is KServe's
// for BYTES, and weir.v1's. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/tensor/dtype.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"

namespace weir {

// Elements of text of one definition's constants and attributes in all, and of
// all inputs of one request: each takes far more than its bytes on the wire.
inline constexpr int64_t kMaxTextElements = int64_t{1} << 22;

// Splits `raw` into exactly out.size() elements that point into it or the
// arena. INVALID_ARGUMENT if it holds fewer or more; what the arena refuses.
absl::Status SplitStrings(const ByteView& raw, CallArena* arena,
                          std::span<StringRef> out);

// How many bytes these take, and those bytes.
size_t StringsSize(std::span<const StringRef> strings);
std::string WriteStrings(std::span<const StringRef> strings);

// The view's bytes in one piece, copied to the arena only if they are not.
absl::StatusOr<StringRef> InOnePiece(const ByteView& view, CallArena* arena);

}  // namespace weir
