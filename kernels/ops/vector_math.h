// Scalar functions of many floats at once, by the widest vector instructions
// that the processor has: for those whose scalar code compilers cannot
// vectorize. Each element's result depends on nothing but the element. Pure.
#pragma once

#include <cstdint>

#include "kernels/base/export.h"

namespace weir {

// y[i] = erf(x[i]) within two units in the last place; NaN stays. `y` may be
// `x`.
WEIR_EXPORT void ErfOfFloats(const float* x, int64_t n, float* y);

}  // namespace weir
