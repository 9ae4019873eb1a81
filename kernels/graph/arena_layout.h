// Places blocks that live over known spans of steps into one arena, so that
// blocks share bytes when their spans do not meet. Pure. Internal to this
// layer.
#pragma once

#include <cstddef>
#include <vector>

namespace weir {

struct ArenaBlock {
  size_t bytes = 0;
  size_t first_step = 0;  // written by it
  size_t last_step = 0;   // read last by it
  size_t offset = 0;      // the result
};

// Best fit in the order of first steps; O(n log n). Returns the arena's size.
// Offsets and size are multiples of kBlockAlignment.
size_t LayOutArena(std::vector<ArenaBlock>& blocks);

}  // namespace weir
