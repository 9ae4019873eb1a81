// Element conversions on the CPU, as loops over dense rows: Cast itself, and
// the way elementwise operators compute half types in float. Pure.
#pragma once

#include <cstdint>

#include "kernels/tensor/dtype.h"

namespace weir {

using ConvertLoop = void (*)(const void* source, void* target, int64_t n);

// For any two of kFixedTypes, by the rules of scalar::Convert; null for others.
ConvertLoop FindConvertLoop(DType from, DType to);

}  // namespace weir
