// What the C library keeps of memory that was freed. For the whole process; any
// thread.
#pragma once

#include <cstddef>

namespace weir {

// Most that the end of each thread's heap keeps; there are up to 8 heaps for
// each CPU.
inline constexpr size_t kHeapEndBytes = size_t{4} << 20;

// By itself the library learns from the largest block that was freed how much
// to keep, up to 64 MiB at the end of each heap, where TrimHeap does not come:
// on a machine of many CPUs a single burst of large messages would stay
// resident for good. To be called before threads start.
void BoundHeap();

// Gives whole pages back that lie between blocks in use: requests and replies
// of hundreds of kilobytes leave holes, and what is in use moves on, so that
// without this the pages grow for hours under load. Takes about a millisecond.
void TrimHeap();

}  // namespace weir
