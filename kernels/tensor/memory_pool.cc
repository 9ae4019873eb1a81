#include "kernels/tensor/memory_pool.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

constexpr size_t kSmallest = 256;
constexpr size_t kQuarters = size_t{1} << 20;

// The size class of `bytes`; REQUIRES: bytes <= kMaxTensorBytes.
size_t ClassBytes(size_t bytes) {
  const size_t power = std::bit_ceil(std::max(bytes, kSmallest));
  if (power <= kQuarters) return power;
  const size_t step = power / 8;  // a quarter of the octave below `power`
  return (bytes + step - 1) / step * step;
}

struct Block {
  DeviceMemory memory;
  std::vector<Point> uses;  // not seen reached yet

  bool Ready() {
    std::erase_if(uses, [](const Point& p) { return p.Outcome().has_value(); });
    return uses.empty();
  }
};

}  // namespace

struct MemoryPool::State {
  class Storage;

  State(Device* d, size_t b) : device(d), budget(b) {}

  void Return(DeviceMemory memory, std::vector<Point> uses);
  // Takes free blocks until `wanted` bytes of the budget are there.
  std::vector<Block> Evict(size_t wanted) WEIR_REQUIRES(mu);

  Device* const device;
  const size_t budget;
  Mutex mu;
  std::map<size_t, std::vector<Block>> free WEIR_GUARDED_BY(mu);
  size_t used WEIR_GUARDED_BY(mu) = 0;
  size_t cached WEIR_GUARDED_BY(mu) = 0;
  uint64_t refused WEIR_GUARDED_BY(mu) = 0;
};

class MemoryPool::State::Storage final : public TensorStorage {
 public:
  Storage(std::shared_ptr<State> state, DeviceMemory memory)
      : state_(std::move(state)), memory_(std::move(memory)) {}
  ~Storage() override { state_->Return(std::move(memory_), Uses()); }

  Device& device() const override { return *state_->device; }
  std::byte* data() const override {
    return static_cast<std::byte*>(memory_.data());
  }
  size_t size() const override { return memory_.size(); }

 private:
  const std::shared_ptr<State> state_;
  DeviceMemory memory_;
};

void MemoryPool::State::Return(DeviceMemory memory, std::vector<Point> uses) {
  const size_t bytes = memory.size();
  MutexLock lock(&mu);
  used -= bytes;
  cached += bytes;
  free[bytes].push_back({std::move(memory), std::move(uses)});
}

std::vector<Block> MemoryPool::State::Evict(size_t wanted) {
  std::vector<Block> evicted;
  for (auto it = free.rbegin(); it != free.rend(); ++it) {
    std::vector<Block>& blocks = it->second;
    for (size_t i = 0; i < blocks.size();) {
      if (wanted <= budget && used + cached <= budget - wanted) return evicted;
      if (!blocks[i].Ready()) {
        ++i;
        continue;
      }
      cached -= it->first;
      evicted.push_back(std::move(blocks[i]));
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return evicted;
}

MemoryPool::MemoryPool(Device* device, size_t budget_bytes)
    : state_(std::make_shared<State>(device, budget_bytes)) {}

MemoryPool::~MemoryPool() {
  bool busy = false;
  {
    MutexLock lock(&state_->mu);
    for (auto& [bytes, blocks] : state_->free) {
      for (Block& block : blocks) busy |= !block.Ready();
    }
  }
  // Fails only on a lost device, whose memory nobody uses any more.
  if (busy) state_->device->Synchronize().IgnoreError();
}

MemoryPool::StorageOr MemoryPool::Allocate(size_t bytes) {
  return Take(bytes, /*may_wait=*/true);
}

MemoryPool::StorageOr MemoryPool::AllocateNow(size_t bytes) {
  return Take(bytes, /*may_wait=*/false);
}

MemoryPool::StorageOr MemoryPool::Take(size_t bytes, bool may_wait) {
  State& state = *state_;
  if (bytes > static_cast<size_t>(kMaxTensorBytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a tensor of ", bytes, " bytes is more than ", kMaxTensorBytes));
  }
  const size_t wanted = ClassBytes(bytes);
  DeviceMemory found;
  std::vector<Block> evicted;  // freed outside the lock, where it may be slow
  bool refused = false;
  {
    MutexLock lock(&state.mu);
    std::vector<Block>& blocks = state.free[wanted];
    const auto free = std::find_if(blocks.begin(), blocks.end(),
                                   [](Block& block) { return block.Ready(); });
    if (free != blocks.end()) {
      found = std::move(free->memory);
      blocks.erase(free);
      state.cached -= wanted;
      state.used += wanted;
    } else {
      const bool frees_none =
          wanted <= state.budget &&
          state.used + state.cached <= state.budget - wanted;
      if (!may_wait && (!frees_none || wanted > state.device->quick_bytes())) {
        return nullptr;
      }
      evicted = state.Evict(wanted);
      refused = wanted > state.budget ||
                state.used + state.cached > state.budget - wanted;
      if (refused) {
        ++state.refused;
      } else {
        state.used += wanted;
      }
    }
  }
  evicted.clear();
  if (refused) {
    absl::Status status =
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       "no device memory for a tensor of ", bytes,
                       " bytes within the budget of ", state.budget)),
                   "DEVICE_MEMORY_EXHAUSTED");
    // Waiting does not help what can never fit.
    if (wanted > state.budget) return status;
    return WithRetryAfter(std::move(status), absl::Milliseconds(100));
  }
  if (found.data() == nullptr) {
    auto memory = state.device->Allocate(wanted);
    if (may_wait && absl::IsResourceExhausted(memory.status())) {
      // The device is short of memory before the budget is.
      Trim();
      memory = state.device->Allocate(wanted);
    }
    if (!memory.ok()) {
      MutexLock lock(&state.mu);
      state.used -= wanted;
      // What is cached may be freed for it, elsewhere.
      if (!may_wait && absl::IsResourceExhausted(memory.status())) {
        return nullptr;
      }
      ++state.refused;
      return std::move(memory).status();
    }
    found = *std::move(memory);
  }
  return std::make_shared<State::Storage>(state_, std::move(found));
}

MemoryPoolStats MemoryPool::stats() const {
  MutexLock lock(&state_->mu);
  MemoryPoolStats stats;
  stats.budget_bytes = state_->budget;
  stats.used_bytes = state_->used;
  stats.cached_bytes = state_->cached;
  stats.refused_total = state_->refused;
  return stats;
}

void MemoryPool::Trim() {
  std::vector<Block> evicted;  // freed outside the lock, where it may be slow
  MutexLock lock(&state_->mu);
  evicted = state_->Evict(state_->budget + 1);
}

}  // namespace weir
