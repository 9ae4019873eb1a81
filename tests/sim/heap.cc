#include "tests/sim/heap.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr unsigned char kFreed = 0xdd;

// In front of every block; 16 bytes, as malloc aligns.
struct alignas(16) Header {
  union {
    uint64_t run;  // in which it was taken; 0: in none
    Header* next;  // of those that were freed in this run
  };
  uint64_t size;
};
static_assert(sizeof(Header) == 16);

uint64_t current_run = 0;
uint64_t last_run = 0;
int64_t live = 0;
Header* freed = nullptr;

void* Take(size_t size) {
  auto* header = static_cast<Header*>(std::malloc(sizeof(Header) + size));
  if (header == nullptr) std::abort();
  header->run = current_run;
  header->size = size;
  if (current_run != 0) ++live;
  return header + 1;
}

void Free(void* block) {
  if (block == nullptr) return;
  Header* header = static_cast<Header*>(block) - 1;
  if (current_run == 0 || header->run != current_run) {
    std::free(header);
    return;
  }
  --live;
  std::memset(block, kFreed, header->size);
  header->next = freed;
  freed = header;
}

}  // namespace

namespace weir::sim {

Heap::Heap() {
  current_run = ++last_run;
  live = 0;
  freed = nullptr;
}

Heap::~Heap() {
  bool leaked = false;
  End(&leaked);
}

OutsideHeap::OutsideHeap() : run_(current_run) { current_run = 0; }
OutsideHeap::~OutsideHeap() { current_run = run_; }

std::string Heap::End(bool* leaked) {
  *leaked = false;
  if (current_run == 0) return "";
  current_run = 0;
  bool written = false;
  while (freed != nullptr) {
    Header* const header = freed;
    freed = header->next;
    const auto* bytes = reinterpret_cast<const unsigned char*>(header + 1);
    for (size_t i = 0; i < header->size; ++i) {
      written = written || bytes[i] != kFreed;
    }
    std::free(header);
  }
  if (written) return "a block was written to after it had been freed\n";
  *leaked = live != 0;
  if (*leaked) {
    return "blocks of the heap are leaked: " + std::to_string(live) + "\n";
  }
  return "";
}

}  // namespace weir::sim

void* operator new(size_t size) { return Take(size); }
void* operator new[](size_t size) { return Take(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return Take(size);
}
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return Take(size);
}
void operator delete(void* block) noexcept { Free(block); }
void operator delete[](void* block) noexcept { Free(block); }
void operator delete(void* block, size_t) noexcept { Free(block); }
void operator delete[](void* block, size_t) noexcept { Free(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept {
  Free(block);
}
void operator delete[](void* block, const std::nothrow_t&) noexcept {
  Free(block);
}
