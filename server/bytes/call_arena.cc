#include "server/bytes/call_arena.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status_macros.h"

namespace weir {
namespace {

constexpr size_t kKeptList = 64;  // blocks that it has room for

}  // namespace

template <typename Blocks>
auto CallArena::FindKept(Blocks& blocks) {
  return std::find_if(blocks.begin(), blocks.end(), [](const Block& block) {
    return block.size <= kKeptBytes;
  });
}

size_t CallArena::kept_bytes() const {
  const auto kept = FindKept(blocks_);
  return kept == blocks_.end() ? 0 : kept->size;
}

void CallArena::Reset() {
  const auto kept = FindKept(blocks_);
  Block block;
  if (kept != blocks_.end()) block = std::move(*kept);
  blocks_.clear();
  // A list that has grown long is memory that nobody counts.
  if (blocks_.capacity() > kKeptList) blocks_.shrink_to_fit();
  if (block.bytes != nullptr) blocks_.push_back(std::move(block));
  kept_unused_ = !blocks_.empty();
  refusal_ = absl::OkStatus();
  free_ = inline_.data();
  left_ = inline_.size();
}

void* CallArena::AllocateHere(size_t bytes, size_t alignment) {
  void* room = std::align(alignment, bytes, free_, left_);
  if (room == nullptr) return nullptr;
  free_ = static_cast<std::byte*>(room) + bytes;
  left_ -= bytes;
  return room;
}

absl::Status CallArena::Grow(size_t needed, bool may_refuse) {
  const bool reuses = kept_unused_ && blocks_.front().size >= needed;
  const size_t size =
      reuses ? blocks_.front().size : std::max(needed, 4 * kInlineBytes);
  if (charge_ != nullptr) {
    absl::Status charged = charge_(payer_, size);
    if (!charged.ok() && refusal_.ok()) refusal_ = charged;
    if (!charged.ok() && may_refuse) return charged;
  }
  if (reuses) {
    kept_unused_ = false;
    free_ = blocks_.front().bytes.get();
  } else {
    Block block;
    block.size = size;
    block.bytes.reset(new std::byte[size]);
    free_ = block.bytes.get();
    blocks_.push_back(std::move(block));
  }
  left_ = size;
  return absl::OkStatus();
}

void* CallArena::do_allocate(size_t bytes, size_t alignment) {
  if (void* room = AllocateHere(bytes, alignment)) return room;
  Grow(bytes + alignment, /*may_refuse=*/false).IgnoreError();
  return AllocateHere(bytes, alignment);
}

absl::StatusOr<void*> CallArena::TryAllocate(size_t bytes, size_t alignment) {
  if (void* room = AllocateHere(bytes, alignment)) return room;
  WEIR_RETURN_IF_ERROR(Grow(bytes + alignment, /*may_refuse=*/true));
  return AllocateHere(bytes, alignment);
}

}  // namespace weir
