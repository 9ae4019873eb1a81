#include "kernels/device/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread.h"
#include "kernels/device/device.h"

namespace weir {

struct PinnedBuffer::Block {
  PinnedPool* pool = nullptr;
  PinnedMemory memory;
  uint32_t number = 0;
  int size_class = 0;
  NumberStack::Link next{0};
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

namespace {

constexpr int kUnitBits = 12;
constexpr int kHighBits = 32;
// Of the budget. Blocks take no more than it, and nor does what is charged: so
// either half of an account holds both, and there are numbers for blocks that
// are being freed besides.
constexpr size_t kMostUnits = size_t{1} << 30;

uint64_t ToWord(uint32_t high, uint32_t low) {
  return uint64_t{high} << kHighBits | low;
}

uint32_t High(uint64_t word) {
  return static_cast<uint32_t>(word >> kHighBits);
}
uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }

}  // namespace

PinnedPool::PinnedPool(Device* device, size_t budget_bytes,
                       const char* budget_name)
    : device_(device),
      budget_(std::min(budget_bytes, kMostUnits << kUnitBits)),
      budget_name_(budget_name) {
  static_assert(kUnitBits == kMinClass);
  static_assert(kFirstChunk * ((size_t{1} << kChunks) - 1) > kMostUnits);
}

PinnedPool::~PinnedPool() {
  // Whoever returned the last buffer may be about to put it into its list,
  // after which it does not look at the pool any more.
  for (Trim(); account().cached > 0; Trim()) Yield();
  for (const auto& chunk : chunks_) delete[] chunk.load();
}

PinnedPool::Account PinnedPool::ToAccount(uint64_t word) {
  return {size_t{High(word)} << kUnitBits, size_t{Low(word)} << kUnitBits};
}

// Unsigned arithmetic wraps, and so a decrease is an addition too. Neither half
// ever goes below zero, and so nothing carries from one into the other.
void PinnedPool::AddLeased(int64_t bytes) {
  account_.fetch_add(static_cast<uint64_t>(bytes >> kUnitBits) << kHighBits);
}

void PinnedPool::AddCached(int64_t bytes) {
  account_.fetch_add(static_cast<uint64_t>(bytes >> kUnitBits));
}

bool PinnedPool::Lease(size_t bytes) {
  const uint64_t units = bytes >> kUnitBits;
  uint64_t word = account_.load();
  do {
    // What is charged may have taken the room of what is cached.
    if (ToAccount(word).leased + bytes > budget_) return false;
  } while (!account_.compare_exchange_weak(
      word, word + ((units << kHighBits) - units)));
  return true;
}

PinnedPool::Room PinnedPool::RoomFor(size_t bytes, const Account& now) const {
  if (bytes == 0 || now.leased + bytes > budget_) return Room::kNone;
  return now.sum() + bytes > budget_ ? Room::kOnceFreed : Room::kEnough;
}

PinnedPool::Room PinnedPool::Reserve(size_t bytes, Room enough) {
  uint64_t word = account_.load();
  for (;;) {
    const Room room = RoomFor(bytes, ToAccount(word));
    if (room < enough) return room;
    const uint64_t more = uint64_t{bytes >> kUnitBits} << kHighBits;
    if (account_.compare_exchange_weak(word, word + more)) return room;
  }
}

// Chunk k begins at the number (2^k - 1) * kFirstChunk.
PinnedBuffer::Block& PinnedPool::BlockOf(uint32_t number) const {
  const size_t place = number + kFirstChunk;
  const auto chunk = static_cast<size_t>(std::bit_width(place)) -
                     static_cast<size_t>(std::bit_width(kFirstChunk));
  return chunks_[chunk].load(
      std::memory_order_acquire)[place - (kFirstChunk << chunk)];
}

auto PinnedPool::LinkOf() {
  return [this](uint32_t number) -> NumberStack::Link& {
    return BlockOf(number).next;
  };
}

PinnedBuffer::Block& PinnedPool::NewBlock() {
  if (const auto spare = spare_.Pop(LinkOf())) return BlockOf(*spare);
  MutexLock lock(&numbers_mu_);
  const uint32_t number = next_number_++;
  const size_t place = number + kFirstChunk;
  if (std::has_single_bit(place)) {  // the first of its chunk
    const auto chunk = static_cast<size_t>(std::countr_zero(place)) -
                       static_cast<size_t>(std::countr_zero(kFirstChunk));
    chunks_[chunk].store(new PinnedBuffer::Block[place],
                         std::memory_order_release);
  }
  PinnedBuffer::Block& block = BlockOf(number);
  block.pool = this;
  block.number = number;
  return block;
}

size_t PinnedPool::Rounded(size_t bytes) const {
  if (bytes > budget_) return 0;
  const size_t rounded = std::bit_ceil(std::max(bytes, size_t{1} << kMinClass));
  const bool exists = std::countr_zero(rounded) - kMinClass < kClasses;
  return exists && rounded <= budget_ ? rounded : 0;
}

// Each was counted before it was pushed, and whoever took it has seen that: so
// no tally goes below zero, though it has no order of its own.
void PinnedPool::CountTaken(Cached& cached, uint32_t blocks) {
  uint64_t word = cached.tally.load(std::memory_order_relaxed);
  uint64_t after;
  do {
    const uint32_t now = High(word) - blocks;
    after = ToWord(now, std::min(Low(word), now));
  } while (!cached.tally.compare_exchange_weak(word, after,
                                               std::memory_order_relaxed));
}

PinnedBuffer::Block* PinnedPool::Pop(size_t size_class) {
  Cached& cached = cached_[size_class];
  const std::optional<uint32_t> number = cached.blocks.Pop(LinkOf());
  if (!number.has_value()) return nullptr;
  CountTaken(cached, 1);
  return &BlockOf(*number);
}

PinnedBuffer::Block* PinnedPool::Evict() {
  for (size_t i = kClasses; i-- > 0;) {
    if (PinnedBuffer::Block* const block = Pop(i)) {
      AddCached(-static_cast<int64_t>(block->memory.size()));
      return block;
    }
  }
  return nullptr;
}

PinnedBuffer PinnedPool::TakeCached(size_t bytes, size_t rounded) {
  if (rounded == 0) return {};
  PinnedBuffer::Block* const block =
      Pop(static_cast<size_t>(std::countr_zero(rounded) - kMinClass));
  if (block == nullptr) return {};
  if (!Lease(rounded)) {
    Push(block);
    return {};
  }
  return PinnedBuffer(block, bytes);
}

// Counted first: who finds it in the list takes it from what is counted.
void PinnedPool::ReturnBlock(PinnedBuffer::Block* block) {
  const uint64_t units = block->memory.size() >> kUnitBits;
  account_.fetch_add(units - (units << kHighBits));
  Push(block);
}

// Once it is there the pool may be gone.
void PinnedPool::Push(PinnedBuffer::Block* block) {
  Cached& cached = cached_[static_cast<size_t>(block->size_class)];
  cached.tally.fetch_add(ToWord(1, 0), std::memory_order_relaxed);
  cached.blocks.Push(block->number, LinkOf());
}

absl::StatusOr<PinnedBuffer> PinnedPool::AcquireNow(size_t bytes) {
  const size_t rounded = Rounded(bytes);
  PinnedBuffer there = TakeCached(bytes, rounded);
  if (!there.empty()) return there;
  const bool quick = rounded <= device_->quick_bytes();
  const Room room =
      quick ? Reserve(rounded, Room::kEnough) : RoomFor(rounded, account());
  if (room == Room::kNone) return Refusal(bytes, rounded);
  if (room == Room::kOnceFreed || !quick) return PinnedBuffer();
  absl::StatusOr<PinnedBuffer> made = Make(bytes, rounded);
  if (made.ok()) return made;
  AddLeased(-static_cast<int64_t>(rounded));
  // What is cached may be freed for it, elsewhere.
  if (absl::IsResourceExhausted(made.status())) return PinnedBuffer();
  refused_.fetch_add(1, std::memory_order_relaxed);
  return made;
}

absl::StatusOr<PinnedBuffer> PinnedPool::Acquire(size_t bytes) {
  const size_t rounded = Rounded(bytes);
  PinnedBuffer there;
  std::vector<PinnedBuffer::Block*> evicted;
  Room room = Room::kOnceFreed;
  while (room == Room::kOnceFreed) {
    there = TakeCached(bytes, rounded);
    if (!there.empty()) break;
    room = Reserve(rounded, Room::kEnough);
    if (room != Room::kOnceFreed) break;
    // Largest first: fewest slow frees.
    if (PinnedBuffer::Block* const block = Evict()) {
      evicted.push_back(block);
    } else {
      Yield();  // one is counted, and about to be there or to be leased
    }
  }
  Free(evicted);
  if (!there.empty()) return there;
  if (room == Room::kNone) return Refusal(bytes, rounded);

  absl::StatusOr<PinnedBuffer> made = Make(bytes, rounded);
  if (absl::IsResourceExhausted(made.status())) {
    Trim();  // the host is short of memory before the budget is
    made = Make(bytes, rounded);
  }
  if (made.ok()) return made;
  AddLeased(-static_cast<int64_t>(rounded));
  refused_.fetch_add(1, std::memory_order_relaxed);
  return made;
}

absl::StatusOr<size_t> PinnedPool::Charge(size_t bytes) {
  constexpr size_t kUnit = size_t{1} << kMinClass;
  if (bytes == 0) return 0;
  const size_t charged =
      bytes <= budget_ ? (bytes + kUnit - 1) / kUnit * kUnit : SIZE_MAX;
  if (charged <= budget_ && Reserve(charged, Room::kOnceFreed) != Room::kNone) {
    return charged;
  }
  return Refusal(bytes, charged);
}

void PinnedPool::Discharge(size_t charged) {
  AddLeased(-static_cast<int64_t>(charged));
}

absl::StatusOr<PinnedBuffer> PinnedPool::Make(size_t bytes, size_t rounded) {
  absl::StatusOr<PinnedMemory> memory = device_->AllocatePinned(rounded);
  if (!memory.ok()) return memory.status();
  PinnedBuffer::Block& block = NewBlock();
  block.memory = *std::move(memory);
  block.size_class = std::countr_zero(rounded) - kMinClass;
  return PinnedBuffer(&block, bytes);
}

absl::Status PinnedPool::Refusal(size_t bytes, size_t rounded) {
  refused_.fetch_add(1, std::memory_order_relaxed);
  const PinnedPoolStats now = stats();
  absl::Status status = WithReason(
      absl::ResourceExhaustedError(absl::StrCat(
          "no host buffer of ", bytes, " bytes: ", now.leased_bytes, " of ",
          now.budget_bytes, " bytes are in use (", budget_name_, ")")),
      "HOST_MEMORY_EXHAUSTED",
      {{"bytes", absl::StrCat(bytes)},
       {"leased_bytes", absl::StrCat(now.leased_bytes)},
       {"budget_bytes", absl::StrCat(now.budget_bytes)}});
  // Waiting does not help what can never fit.
  if (rounded == 0 || rounded > budget_) return status;
  return WithRetryAfter(std::move(status), absl::Milliseconds(10));
}

void PinnedPool::Free(const std::vector<PinnedBuffer::Block*>& blocks) {
  for (PinnedBuffer::Block* block : blocks) {
    block->memory.Reset();
    spare_.Push(block->number, LinkOf());
  }
}

PinnedPoolStats PinnedPool::stats() const {
  const Account now = account();
  return {.budget_bytes = budget_,
          .leased_bytes = now.leased,
          .lent_bytes = lent_.load(std::memory_order_relaxed),
          .cached_bytes = now.cached,
          .refused_total = refused_.load(std::memory_order_relaxed)};
}

void PinnedPool::Trim() {
  std::vector<PinnedBuffer::Block*> taken;
  for (Cached& cached : cached_) {
    const std::vector<uint32_t> numbers = cached.blocks.TakeAll(LinkOf());
    if (numbers.empty()) continue;
    CountTaken(cached, static_cast<uint32_t>(numbers.size()));
    for (const uint32_t number : numbers) {
      taken.push_back(&BlockOf(number));
      AddCached(-static_cast<int64_t>(taken.back()->memory.size()));
    }
  }
  Free(taken);
}

bool PinnedPool::TrimOne(size_t keep) {
  const bool exceeded = account().sum() > budget_;
  for (size_t i = kClasses; i-- > 0;) {
    Atomic<uint64_t>& tally = cached_[i].tally;
    const uint32_t unused = Low(tally.load(std::memory_order_relaxed));
    if (!exceeded && (unused == 0 || account().cached <= keep)) continue;
    PinnedBuffer::Block* const block = Pop(i);
    if (block == nullptr) continue;
    AddCached(-static_cast<int64_t>(block->memory.size()));
    // It was one of those; there may be fewer by now, for others were taken.
    uint64_t word = tally.load(std::memory_order_relaxed);
    while (unused > 0 &&
           !tally.compare_exchange_weak(
               word, ToWord(High(word), std::min(Low(word), unused - 1)),
               std::memory_order_relaxed)) {
    }
    Free({block});
    return true;
  }
  for (Cached& cached : cached_) {
    uint64_t word = cached.tally.load(std::memory_order_relaxed);
    while (!cached.tally.compare_exchange_weak(
        word, ToWord(High(word), High(word)), std::memory_order_relaxed)) {
    }
  }
  return false;
}

}  // namespace weir
