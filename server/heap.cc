#include "server/heap.h"

#include <malloc.h>

namespace weir {

void BoundHeap() {
  mallopt(M_ARENA_MAX, kHeaps);
  // Setting either of these ends the learning. What is larger is mapped by
  // itself, and unmapped when it is freed.
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(kHeapEndBytes));
  mallopt(M_MMAP_THRESHOLD, static_cast<int>(kHeapEndBytes));
}

void TrimHeap() { malloc_trim(0); }

}  // namespace weir
