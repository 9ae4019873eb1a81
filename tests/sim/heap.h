// The heap of a run: every block that is taken while there is one is given back
// before its end, or it is a leak; none is used again meanwhile, so that what
// is written to a freed block is noticed at the end, and who reads one finds
// nonsense.
#pragma once

#include <cstdint>
#include <string>

namespace weir::sim {

// One at a time.
class Heap {
 public:
  Heap();
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // What is wrong; empty: nothing. `*leaked`: that blocks are left, and that
  // alone.
  std::string End(bool* leaked);
};

// While there is one, what is taken is the tool's own and may outlive the run.
class OutsideHeap {
 public:
  OutsideHeap();
  ~OutsideHeap();
  OutsideHeap(const OutsideHeap&) = delete;
  OutsideHeap& operator=(const OutsideHeap&) = delete;

 private:
  const uint64_t run_;
};

}  // namespace weir::sim
