// The fault slot of one work, as kernels see it. Plain types only: NVRTC
// compiles this text too.
#pragma once

namespace weir {

// Begins with what FaultSlot (stream.h) holds. `record` is the slot in pinned
// memory that the completion thread reads.
struct CudaFaultSlot {
  unsigned long long word;
  unsigned long long* record;
};

#ifdef __CUDACC__
// The first fault of a work wins; it is visible to the host before the work's
// completion is.
__device__ inline void ReportFault(CudaFaultSlot* slot, unsigned node,
                                   unsigned code) {
  const unsigned long long word =
      (static_cast<unsigned long long>(node) + 1) << 32 | code;
  if (atomicCAS(&slot->word, 0ull, word) == 0ull) {
    *static_cast<volatile unsigned long long*>(slot->record) = word;
    __threadfence_system();
  }
}
#endif

}  // namespace weir
