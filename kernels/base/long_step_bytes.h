// From how many bytes on it takes long to read, copy or compare them: no thread
// on which others wait does so itself.
#pragma once

#include <cstddef>

namespace weir {

// A step that reads or writes more than this is a long one.
inline constexpr size_t kLongStepBytes = size_t{1} << 20;

// A tensor counts with so many bytes beside its own: what it takes to find it,
// to describe it and to forget it.
inline constexpr size_t kLongStepTensorBytes = 256;

}  // namespace weir
