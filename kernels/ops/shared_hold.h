// What a plan holds and others may hold, too: a library's object, loaded code.
#pragma once

#include <cstddef>

namespace weir {

struct SharedHold {
  const void* object;  // tells it from others; lives as long as the plan
  size_t bytes;
};

}  // namespace weir
