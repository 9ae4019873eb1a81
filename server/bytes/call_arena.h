// Memory that lives as long as one call: a block inside the call object, then
// blocks from the heap, which are charged to the call. Nothing is freed before
// Reset(), which keeps one heap block so that a call of the same size allocates
// nothing the next time. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weir {

class CallArena final : public std::pmr::memory_resource {
 public:
  static constexpr size_t kInlineBytes = 4096;
  // A larger heap block is not kept for the next call.
  static constexpr size_t kKeptBytes = 64 * 1024;

  // Asked before a heap block is used.
  using ChargeFn = absl::Status (*)(void* payer, size_t bytes);

  // Without a payer the arena grows freely.
  CallArena() { Reset(); }
  CallArena(ChargeFn charge, void* payer) : charge_(charge), payer_(payer) {
    Reset();
  }
  CallArena(const CallArena&) = delete;
  CallArena& operator=(const CallArena&) = delete;

  // Uninitialized room for `count` trivially destructible objects.
  template <typename T>
  std::span<T> AllocateSpan(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    void* room = allocate(count * sizeof(T), alignof(T));
    return {static_cast<T*>(room), count};
  }

  // The same for a count that a message names: refused before the memory is
  // taken.
  template <typename T>
  absl::StatusOr<std::span<T>> TryAllocateSpan(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    // Of pointers, too: NOLINTNEXTLINE(bugprone-sizeof-expression)
    absl::StatusOr<void*> room = TryAllocate(count * sizeof(T), alignof(T));
    if (!room.ok()) return room.status();
    return std::span<T>(static_cast<T*>(*room), count);
  }
  absl::StatusOr<void*> TryAllocate(size_t bytes, size_t alignment);
  // For memory beside the arena that its payer is to know of too. A little of
  // it counts with what a call has counted with from the beginning.
  static constexpr size_t kLittleBytes = size_t{1} << 10;
  absl::Status Charge(size_t bytes) const {
    return charge_ == nullptr || bytes <= kLittleBytes ? absl::OkStatus()
                                                       : charge_(payer_, bytes);
  }

  // What was refused first, whether or not it was taken nevertheless: memory
  // resources cannot refuse. Whoever allocates in proportion to a message does
  // so by the functions that can, and stops at this.
  bool refused() const { return !refusal_.ok(); }
  const absl::Status& refusal() const { return refusal_; }

  // Of the heap blocks, what Reset() will keep.
  size_t kept_bytes() const;

  // Forgets everything that was allocated.
  void Reset();

 private:
  void* do_allocate(size_t bytes, size_t alignment) override;
  void* AllocateHere(size_t bytes, size_t alignment);
  // The block that Reset() keeps, or the end.
  template <typename Blocks>
  static auto FindKept(Blocks& blocks);
  // Makes room for an allocation that does not fit, unless that is refused.
  absl::Status Grow(size_t needed, bool may_refuse);
  void do_deallocate(void*, size_t, size_t) override {}
  bool do_is_equal(const memory_resource& other) const noexcept override {
    return this == &other;
  }

  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    size_t size = 0;
  };

  const ChargeFn charge_ = nullptr;
  void* const payer_ = nullptr;
  absl::Status refusal_;
  void* free_ = nullptr;
  size_t left_ = 0;
  std::vector<Block> blocks_;
  // The kept block is in blocks_ but was not used by this call yet.
  bool kept_unused_ = false;
  alignas(std::max_align_t) std::array<std::byte, kInlineBytes> inline_;
};

}  // namespace weir
