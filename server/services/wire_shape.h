// Shapes of which not everything is known, as messages say them. Pure; any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "absl/types/span.h"
#include "kernels/tensor/shape.h"
#include "server/bytes/call_arena.h"
#include "server/models/repository.h"

namespace weir {

// In the arena; kUnknownExtent where it has a symbol.
inline std::span<const int64_t> WireShape(const SymbolicDims& shape,
                                          CallArena* arena) {
  const std::span<int64_t> extents = arena->AllocateSpan<int64_t>(shape.size());
  std::transform(shape.begin(), shape.end(), extents.begin(), [](Dim dim) {
    return dim.known() ? dim.value() : kUnknownExtent;
  });
  return extents;
}

// Whether a shape may be what is said of it: kUnknownExtent fits everywhere.
inline bool FitsShape(absl::Span<const int64_t> said,
                      absl::Span<const int64_t> dims) {
  return std::equal(said.begin(), said.end(), dims.begin(), dims.end(),
                    [](int64_t wanted, int64_t extent) {
                      return wanted == kUnknownExtent || wanted == extent;
                    });
}

}  // namespace weir
