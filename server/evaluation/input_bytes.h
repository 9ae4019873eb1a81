// A request's bytes as an input of a work: it points into the received slices.
// For one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/eval/work.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"

namespace weir {

// `raw` as `input`. Strings are split into views; bytes that the host reads are
// joined if they lie in several slices, others if the slices are small;
// booleans are copied if a byte is neither 0 nor 1, and become so. Nothing else
// is copied. INVALID_ARGUMENT for a shape that is none, and for more or fewer
// bytes than type and shape need.
absl::Status FillInput(DType dtype, std::span<const int64_t> shape,
                       const ByteView& raw, bool on_host, CallArena* arena,
                       InputSource* input);

// Elements of all BYTES inputs of one request.
class TextElements {
 public:
  // Counts those of an input of this type and shape. RESOURCE_EXHAUSTED if they
  // are more than the request may still have.
  absl::Status Take(DType dtype, absl::Span<const int64_t> shape);

 private:
  int64_t taken_ = 0;
};

}  // namespace weir
