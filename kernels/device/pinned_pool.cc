#include "kernels/device/pinned_pool.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/device/device.h"

namespace weir {

struct PinnedBuffer::Block {
  PinnedPool* pool = nullptr;
  PinnedMemory memory;
  int size_class = 0;
  Block* next = nullptr;  // in the free list
};

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    block_ = std::exchange(other.block_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

std::byte* PinnedBuffer::data() const {
  return block_ == nullptr ? nullptr : block_->memory.data();
}

size_t PinnedBuffer::capacity() const {
  return block_ == nullptr ? 0 : block_->memory.size();
}

void PinnedBuffer::Reset() {
  if (block_ != nullptr) block_->pool->ReturnBlock(std::exchange(block_, {}));
  size_ = 0;
}

PinnedBuffer::Block* PinnedBuffer::Release() {
  if (block_ != nullptr && block_->size_class > 0) {
    block_->pool->lent_.fetch_add(block_->memory.size(),
                                  std::memory_order_relaxed);
  }
  size_ = 0;
  return std::exchange(block_, nullptr);
}

void PinnedBuffer::Return(Block* block) {
  PinnedPool* const pool = block->pool;
  if (block->size_class > 0) {
    pool->lent_.fetch_sub(block->memory.size(), std::memory_order_relaxed);
  }
  pool->ReturnBlock(block);
}

PinnedPool::PinnedPool(Device* device, size_t budget_bytes)
    : device_(device), budget_(budget_bytes) {}

PinnedPool::~PinnedPool() { Trim(); }

size_t PinnedPool::Rounded(size_t bytes) const {
  if (bytes > budget_) return 0;
  const size_t rounded = std::bit_ceil(std::max(bytes, size_t{1} << kMinClass));
  const bool exists = std::countr_zero(rounded) - kMinClass < kClasses;
  return exists && rounded <= budget_ ? rounded : 0;
}

PinnedBuffer::Block* PinnedPool::PopFree(size_t size_class) {
  PinnedBuffer::Block*& head = free_[size_class];
  if (head == nullptr) return nullptr;
  PinnedBuffer::Block* const block = std::exchange(head, head->next);
  --count_[size_class];
  unused_[size_class] = std::min(unused_[size_class], count_[size_class]);
  cached_ -= block->memory.size();
  return block;
}

PinnedBuffer PinnedPool::TakeFree(size_t bytes, size_t rounded) {
  PinnedBuffer::Block* const block =
      PopFree(static_cast<size_t>(std::countr_zero(rounded) - kMinClass));
  if (block == nullptr) return {};
  leased_ += rounded;
  return PinnedBuffer(block, bytes);
}

absl::StatusOr<PinnedBuffer> PinnedPool::AcquireNow(size_t bytes) {
  const size_t rounded = Rounded(bytes);
  bool fits = false;
  {
    MutexLock lock(&mu_);
    if (rounded > 0) {
      if (PinnedBuffer free = TakeFree(bytes, rounded); !free.empty()) {
        return free;
      }
      fits = leased_ + rounded <= budget_;
    }
    if (fits) {
      const bool frees_none = leased_ + cached_ + rounded <= budget_;
      if (!frees_none || rounded > device_->quick_bytes()) {
        return PinnedBuffer();
      }
      leased_ += rounded;
    } else {
      ++refused_;
    }
  }
  if (!fits) return Refusal(bytes, rounded);
  absl::StatusOr<PinnedBuffer> made = Make(bytes, rounded);
  if (made.ok()) return made;
  MutexLock lock(&mu_);
  leased_ -= rounded;
  // What is cached may be freed for it, elsewhere.
  if (absl::IsResourceExhausted(made.status())) return PinnedBuffer();
  ++refused_;
  return made;
}

absl::StatusOr<PinnedBuffer> PinnedPool::Acquire(size_t bytes) {
  const size_t rounded = Rounded(bytes);
  PinnedBuffer::Block* surplus = nullptr;
  bool fits = false;
  {
    MutexLock lock(&mu_);
    if (rounded > 0) {
      if (PinnedBuffer free = TakeFree(bytes, rounded); !free.empty()) {
        return free;
      }
      fits = leased_ + rounded <= budget_;
    }
    if (fits) {
      surplus = MakeRoom(rounded);
      leased_ += rounded;
    } else {
      ++refused_;
    }
  }
  if (!fits) return Refusal(bytes, rounded);
  FreeBlocks(surplus);

  absl::StatusOr<PinnedBuffer> made = Make(bytes, rounded);
  if (absl::IsResourceExhausted(made.status())) {
    Trim();  // the host is short of memory before the budget is
    made = Make(bytes, rounded);
  }
  if (made.ok()) return made;
  MutexLock lock(&mu_);
  leased_ -= rounded;
  ++refused_;
  return made;
}

absl::StatusOr<size_t> PinnedPool::Charge(size_t bytes) {
  constexpr size_t kUnit = size_t{1} << kMinClass;
  const size_t charged =
      bytes <= budget_ ? (bytes + kUnit - 1) / kUnit * kUnit : SIZE_MAX;
  {
    MutexLock lock(&mu_);
    if (charged <= budget_ && leased_ + charged <= budget_) {
      leased_ += charged;
      return charged;
    }
    ++refused_;
  }
  return Refusal(bytes, charged);
}

void PinnedPool::Discharge(size_t charged) {
  MutexLock lock(&mu_);
  leased_ -= charged;
}

absl::StatusOr<PinnedBuffer> PinnedPool::Make(size_t bytes, size_t rounded) {
  absl::StatusOr<PinnedMemory> memory = device_->AllocatePinned(rounded);
  if (!memory.ok()) return memory.status();
  auto* block = new PinnedBuffer::Block;
  block->pool = this;
  block->memory = *std::move(memory);
  block->size_class = std::countr_zero(rounded) - kMinClass;
  return PinnedBuffer(block, bytes);
}

absl::Status PinnedPool::Refusal(size_t bytes, size_t rounded) const {
  const PinnedPoolStats now = stats();
  absl::Status status =
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "no host buffer of ", bytes, " bytes: ", now.leased_bytes,
                     " of ", now.budget_bytes,
                     " bytes are in use (--host-bytes; the CPU "
                     "beside a GPU has a quarter of it)")),
                 "HOST_MEMORY_EXHAUSTED",
                 {{"bytes", absl::StrCat(bytes)},
                  {"leased_bytes", absl::StrCat(now.leased_bytes)},
                  {"budget_bytes", absl::StrCat(now.budget_bytes)}});
  // Waiting does not help what can never fit.
  if (rounded == 0 || rounded > budget_) return status;
  return WithRetryAfter(std::move(status), absl::Milliseconds(10));
}

PinnedBuffer::Block* PinnedPool::MakeRoom(size_t bytes) {
  PinnedBuffer::Block* taken = nullptr;
  // Largest first: fewest slow frees.
  for (size_t i = kClasses; i-- > 0;) {
    while (leased_ + cached_ + bytes > budget_ && free_[i] != nullptr) {
      PinnedBuffer::Block* const block = PopFree(i);
      block->next = taken;
      taken = block;
    }
  }
  return taken;
}

void PinnedPool::FreeBlocks(PinnedBuffer::Block* blocks) {
  while (blocks != nullptr) {
    delete std::exchange(blocks, blocks->next);
  }
}

void PinnedPool::ReturnBlock(PinnedBuffer::Block* block) {
  MutexLock lock(&mu_);
  const auto size_class = static_cast<size_t>(block->size_class);
  block->next = std::exchange(free_[size_class], block);
  ++count_[size_class];
  leased_ -= block->memory.size();
  cached_ += block->memory.size();
}

PinnedPoolStats PinnedPool::stats() const {
  MutexLock lock(&mu_);
  return {.budget_bytes = budget_,
          .leased_bytes = leased_,
          .lent_bytes = lent_.load(std::memory_order_relaxed),
          .cached_bytes = cached_,
          .refused_total = refused_};
}

void PinnedPool::Trim() {
  PinnedBuffer::Block* taken = nullptr;
  {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < kClasses; ++i) {
      while (PinnedBuffer::Block* const block = PopFree(i)) {
        block->next = std::exchange(taken, block);
      }
    }
  }
  FreeBlocks(taken);
}

bool PinnedPool::TrimOne(size_t keep) {
  PinnedBuffer::Block* taken = nullptr;
  {
    MutexLock lock(&mu_);
    const bool exceeded = leased_ + cached_ > budget_;
    for (size_t i = kClasses; i-- > 0 && taken == nullptr;) {
      if (!exceeded && (unused_[i] == 0 || cached_ <= keep)) continue;
      const size_t unused = unused_[i];
      taken = PopFree(i);
      if (taken != nullptr && unused > 0) unused_[i] = unused - 1;
    }
    if (taken == nullptr) unused_ = count_;
  }
  if (taken == nullptr) return false;
  taken->next = nullptr;
  FreeBlocks(taken);
  return true;
}

}  // namespace weir
