// A bounded pool of pinned host buffers in power-of-two size classes: staging
// for inputs, and the memory that becomes a reply's slices. Thread-safe; a
// lease takes no heap block and no lock where a buffer of its class is cached.
// Buffers may be returned from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/atomic.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/base/number_stack.h"
#include "kernels/device/memory.h"

namespace weir {

class Device;
class PinnedPool;

class WEIR_EXPORT PinnedBuffer {
 public:
  PinnedBuffer() = default;  // empty
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : block_(std::exchange(other.block_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() { Reset(); }

  std::byte* data() const;
  size_t size() const { return size_; }  // as asked for
  size_t capacity() const;               // what it takes of the budget
  bool empty() const { return block_ == nullptr; }
  void Reset();

  // Lends the memory to somebody who will give it back from a C callback, by
  // Return.
  struct Block;
  Block* Release();
  static void Return(Block* block);

 private:
  friend class PinnedPool;
  PinnedBuffer(Block* block, size_t size) : block_(block), size_(size) {}
  Block* block_ = nullptr;
  size_t size_ = 0;
};

struct PinnedPoolStats {
  size_t budget_bytes = 0;
  size_t leased_bytes = 0;
  size_t lent_bytes = 0;  // of them, in buffers above the smallest
  size_t cached_bytes = 0;
  uint64_t refused_total = 0;
};

class WEIR_EXPORT PinnedPool {
 public:
  // `device` and the pool outlive every buffer. Errors call the budget
  // `budget_name`.
  PinnedPool(Device* device, size_t budget_bytes,
             const char* budget_name = "budget_bytes");
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // RESOURCE_EXHAUSTED (reason HOST_MEMORY_EXHAUSTED, with a retry hint) when
  // the budget is spent even after cached buffers of other classes were freed.
  // `bytes` 0 gives a buffer of the smallest class.
  absl::StatusOr<PinnedBuffer> Acquire(size_t bytes);

  // The same for threads that may not wait: an empty buffer if the device would
  // have to make more than its quick_bytes, or anything be freed.
  absl::StatusOr<PinnedBuffer> AcquireNow(size_t bytes);

  // Counts other memory of the host, of at least so many bytes, as leased; how
  // many they are then is the answer, for Discharge. RESOURCE_EXHAUSTED as
  // Acquire has it. Waits for nobody: what is cached may exceed what is left of
  // the budget until Acquire or TrimOne frees it.
  absl::StatusOr<size_t> Charge(size_t bytes);
  void Discharge(size_t charged);

  // Whether half of the budget is lent: who can copy what it wants to lend,
  // should. Takes no lock.
  bool lends_much() const {
    return lent_.load(std::memory_order_relaxed) > budget_ / 2;
  }

  PinnedPoolStats stats() const;
  void Trim();  // frees what is cached

  // Frees a buffer that lay unused since the call that was the last to return
  // false, the largest first, as long as more than `keep` bytes are cached, or
  // whichever while the budget is exceeded; false if there is none. So what a
  // burst took goes back, what is used again and again stays. May wait for the
  // device. One thread at a time.
  bool TrimOne(size_t keep);

 private:
  friend class PinnedBuffer;
  static constexpr int kMinClass = 12;  // 4 KiB
  static constexpr int kClasses = 36;

  // Blocks are kept for ever, with memory or without, each with its number, in
  // chunks of which every one is twice as large as the one before.
  static constexpr size_t kFirstChunk = 64;
  static constexpr size_t kChunks = 25;

  struct Account {  // in bytes
    size_t leased = 0;
    size_t cached = 0;
    size_t sum() const { return leased + cached; }
  };
  struct alignas(64) Cached {
    NumberStack blocks;
    // How many there are, above how many there were at least since TrimOne was
    // false.
    Atomic<uint64_t> tally{0};
  };
  // For so many bytes more: none, some once others are freed, or enough.
  enum class Room { kNone, kOnceFreed, kEnough };

  static Account ToAccount(uint64_t word);
  Account account() const { return ToAccount(account_.load()); }
  Room RoomFor(size_t bytes, const Account& now) const;
  // Counts them as leased where there is `enough`.
  Room Reserve(size_t bytes, Room enough);
  // Moves so many bytes from cached to leased; false without room for them.
  bool Lease(size_t bytes);
  void AddLeased(int64_t bytes);
  void AddCached(int64_t bytes);

  PinnedBuffer::Block& BlockOf(uint32_t number) const;
  auto LinkOf();
  PinnedBuffer::Block& NewBlock();
  void ReturnBlock(PinnedBuffer::Block* block);
  void Push(PinnedBuffer::Block* block);  // its bytes count as cached
  absl::Status Refusal(size_t bytes, size_t rounded);
  // What a buffer of so many bytes takes; 0 if it can never fit.
  size_t Rounded(size_t bytes) const;
  PinnedBuffer TakeCached(size_t bytes, size_t rounded);
  // REQUIRES: it is counted as leased.
  absl::StatusOr<PinnedBuffer> Make(size_t bytes, size_t rounded);
  // So many blocks were taken out.
  static void CountTaken(Cached& cached, uint32_t blocks);
  // A cached block of the class, null if there is none; its bytes still count
  // as cached.
  PinnedBuffer::Block* Pop(size_t size_class);
  // One of the largest class that has one, null if none has; its bytes count no
  // more.
  PinnedBuffer::Block* Evict();
  // REQUIRES: they were evicted.
  void Free(const std::vector<PinnedBuffer::Block*>& blocks);

  Device* const device_;
  const size_t budget_;
  const char* const budget_name_;
  Atomic<size_t> lent_{0};
  Atomic<uint64_t> refused_{0};
  // What is leased above what is cached, in units of the smallest class, so
  // that both change at once. A block counts as cached before it is in its
  // list, and until after it was taken out.
  alignas(64) Atomic<uint64_t> account_{0};
  std::array<Cached, kClasses> cached_;
  std::array<Atomic<PinnedBuffer::Block*>, kChunks> chunks_ = {};
  NumberStack spare_;  // blocks without memory
  Mutex numbers_mu_;
  uint32_t next_number_ WEIR_GUARDED_BY(numbers_mu_) = 0;
};

}  // namespace weir
