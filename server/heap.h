// What the C library keeps of memory that was freed. For the whole process; any
// thread.
#pragma once

#include <cstddef>

namespace weir {

// Heaps that all threads share. By itself the library makes up to 8 for each
// CPU. What one thread allocates and another frees leaves holes in every heap
// that only its own threads fill again, so that with a heap for each thread
// memory grows for minutes under a constant load (docs/benchmarks.md).
inline constexpr int kHeaps = 4;

// Most that the end of each heap keeps.
inline constexpr size_t kHeapEndBytes = size_t{4} << 20;

// By itself the library learns from the largest block that was freed how much
// to keep, up to 64 MiB at the end of each heap, where TrimHeap does not come:
// on a machine of many CPUs a single burst of large messages would stay
// resident for good. It also makes no more than kHeaps. To be called before
// threads start.
void BoundHeap();

// Gives whole pages back that lie between blocks in use: requests and replies
// of hundreds of kilobytes leave holes, and what is in use moves on, so that
// without this the pages grow for hours under load. Takes about a millisecond.
void TrimHeap();

}  // namespace weir
