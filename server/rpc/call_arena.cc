#include "server/rpc/call_arena.h"

#include <algorithm>
#include <cstring>

namespace weir {

std::string_view CallArena::CopyString(std::string_view text) {
  if (text.empty()) return {};
  const std::span<char> copy = AllocateSpan<char>(text.size());
  std::memcpy(copy.data(), text.data(), text.size());
  return {copy.data(), copy.size()};
}

void CallArena::Reset() {
  const auto kept =
      std::find_if(blocks_.begin(), blocks_.end(),
                   [](const Block& block) { return block.size <= kKeptBytes; });
  if (kept != blocks_.end()) {
    std::swap(*kept, blocks_.front());
    blocks_.resize(1);
  } else {
    blocks_.clear();
  }
  kept_unused_ = !blocks_.empty();
  free_ = inline_.data();
  left_ = inline_.size();
}

void* CallArena::do_allocate(size_t bytes, size_t alignment) {
  if (void* room = std::align(alignment, bytes, free_, left_)) {
    free_ = static_cast<std::byte*>(room) + bytes;
    left_ -= bytes;
    return room;
  }
  const size_t needed = bytes + alignment;
  if (kept_unused_ && blocks_.front().size >= needed) {
    kept_unused_ = false;
    free_ = blocks_.front().bytes.get();
    left_ = blocks_.front().size;
  } else {
    Block block;
    block.size = std::max(needed, 4 * kInlineBytes);
    block.bytes.reset(new std::byte[block.size]);
    free_ = block.bytes.get();
    left_ = block.size;
    blocks_.push_back(std::move(block));
  }
  void* room = std::align(alignment, bytes, free_, left_);
  free_ = static_cast<std::byte*>(room) + bytes;
  left_ -= bytes;
  return room;
}

}  // namespace weir
