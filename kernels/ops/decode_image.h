// What nodes of weir.DecodeImage take, for the kernels of both devices. Pure.
#pragma once

#include <cstdint>

#include "kernels/base/export.h"
#include "kernels/ops/op.h"

namespace weir {

// How many files there are, and what decoding one of them on the host takes of
// its memory at most; 0 while they are not known.
WEIR_EXPORT int64_t FilesOf(const PlanArgs& args);
WEIR_EXPORT int64_t DecoderBytesOf(const PlanArgs& args);

}  // namespace weir
