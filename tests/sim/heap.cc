#include "tests/sim/heap.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

constexpr unsigned char kFreed = 0xdd;
constexpr size_t kAlignment = 16;
// All runs' blocks lie here, those of one run one after the other.
constexpr size_t kBytes = size_t{8} << 30;

// In front of every block.
struct alignas(kAlignment) Header {
  uint64_t size;  // what was asked for
  uint64_t freed;
};
static_assert(sizeof(Header) == kAlignment);

char* arena = nullptr;
char* begin = nullptr;  // of this run's
char* end = nullptr;
bool in_run = false;
int64_t live = 0;

char* Arena() {
  if (arena == nullptr) {
    void* const bytes =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (bytes == MAP_FAILED) {
      std::perror("the heap of the simulation");
      std::abort();
    }
    arena = begin = end = static_cast<char*>(bytes);
  }
  return arena;
}

size_t RoundUp(size_t size) {
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

void* Take(size_t size, size_t alignment = kAlignment) {
  if (!in_run) {
    void* const block = alignment <= kAlignment
                            ? std::malloc(size)
                            : std::aligned_alloc(alignment, RoundUp(size));
    if (block == nullptr) std::abort();
    return block;
  }
  // Room up to the alignment is a block that was freed.
  while ((reinterpret_cast<uintptr_t>(end) + sizeof(Header)) % alignment != 0) {
    *reinterpret_cast<Header*>(end) = {0, 1};
    end += sizeof(Header);
  }
  auto* const header = reinterpret_cast<Header*>(end);
  end += sizeof(Header) + RoundUp(size);
  if (end > arena + kBytes) std::abort();
  *header = {size, 0};
  ++live;
  return header + 1;
}

void Free(void* block) {
  if (block == nullptr) return;
  auto* const bytes = static_cast<char*>(block);
  if (arena == nullptr || bytes < arena || bytes >= arena + kBytes) {
    std::free(block);
    return;
  }
  // One of a run before this that was kept.
  if (bytes < begin) return;
  Header* const header = static_cast<Header*>(block) - 1;
  if (header->freed != 0) {
    std::fprintf(stderr, "a block is freed twice\n");
    std::abort();
  }
  --live;
  header->freed = 1;
  std::memset(block, kFreed, header->size);
}

bool IsUntouched(const Header* header) {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(header + 1);
  return header->size == 0 ||
         (bytes[0] == kFreed &&
          std::memcmp(bytes, bytes + 1, header->size - 1) == 0);
}

}  // namespace

namespace weir::sim {

Heap::Heap() {
  Arena();
  end = begin;
  in_run = true;
  live = 0;
}

// What is left stays where it is.
Heap::~Heap() {
  in_run = false;
  begin = end;
}

OutsideHeap::OutsideHeap() : run_(in_run) { in_run = false; }
OutsideHeap::~OutsideHeap() { in_run = run_; }

std::string Heap::End(bool* leaked) {
  in_run = false;
  *leaked = false;
  bool written = false;
  for (const char* at = begin; at != end;) {
    const auto* const header = reinterpret_cast<const Header*>(at);
    at += sizeof(Header) + RoundUp(header->size);
    written = written || (header->freed != 0 && !IsUntouched(header));
  }
  *leaked = live != 0 && !written;
  if (written) return "a block was written to after it had been freed\n";
  if (*leaked) {
    return "blocks of the heap are leaked: " + std::to_string(live) + "\n";
  }
  end = begin;
  return "";
}

}  // namespace weir::sim

void* operator new(size_t size) { return Take(size); }
void* operator new[](size_t size) { return Take(size); }
void* operator new(size_t size, std::align_val_t alignment) {
  return Take(size, static_cast<size_t>(alignment));
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return Take(size, static_cast<size_t>(alignment));
}
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
void operator delete(void* block, std::align_val_t) noexcept { Free(block); }
void operator delete[](void* block, std::align_val_t) noexcept { Free(block); }
void operator delete(void* block, size_t, std::align_val_t) noexcept {
  Free(block);
}
void operator delete[](void* block, size_t, std::align_val_t) noexcept {
  Free(block);
}
void operator delete(void* block, const std::nothrow_t&) noexcept {
  Free(block);
}
void operator delete[](void* block, const std::nothrow_t&) noexcept {
  Free(block);
}
