#include "kernels/graph/arena_layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "kernels/base/alignment.h"

namespace weir {
namespace {

// Free ranges below the arena's top, by offset and by size.
class FreeList {
 public:
  size_t Take(size_t bytes) {
    const auto best = by_size_.lower_bound({bytes, 0});
    if (best != by_size_.end()) {
      const auto [size, offset] = *best;
      Erase(offset, size);
      if (size > bytes) Insert(offset + bytes, size - bytes);
      return offset;
    }
    // Nothing fits: grow, from the free range at the top if there is one.
    size_t offset = top_;
    if (!by_offset_.empty()) {
      const auto last = std::prev(by_offset_.end());
      if (last->first + last->second == top_) {
        offset = last->first;
        Erase(last->first, last->second);
      }
    }
    top_ = offset + bytes;
    return offset;
  }

  void Give(size_t offset, size_t bytes) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        Erase(before->first, before->second);
      }
    }
    next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && offset + bytes == next->first) {
      bytes += next->second;
      Erase(next->first, next->second);
    }
    Insert(offset, bytes);
  }

  size_t top() const { return top_; }

 private:
  void Insert(size_t offset, size_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void Erase(size_t offset, size_t bytes) {
    by_offset_.erase(offset);
    by_size_.erase({bytes, offset});
  }

  std::map<size_t, size_t> by_offset_;
  std::set<std::pair<size_t, size_t>> by_size_;
  size_t top_ = 0;
};

}  // namespace

size_t LayOutArena(std::vector<ArenaBlock>& blocks) {
  std::vector<size_t> starts(blocks.size());
  std::iota(starts.begin(), starts.end(), size_t{0});
  std::vector<size_t> ends = starts;
  std::stable_sort(starts.begin(), starts.end(), [&](size_t a, size_t b) {
    return blocks[a].first_step != blocks[b].first_step
               ? blocks[a].first_step < blocks[b].first_step
               : blocks[a].bytes > blocks[b].bytes;
  });
  std::stable_sort(ends.begin(), ends.end(), [&](size_t a, size_t b) {
    return blocks[a].last_step < blocks[b].last_step;
  });
  FreeList free;
  size_t ended = 0;
  for (size_t i : starts) {
    while (ended < ends.size() &&
           blocks[ends[ended]].last_step < blocks[i].first_step) {
      const ArenaBlock& gone = blocks[ends[ended++]];
      if (gone.bytes > 0) free.Give(gone.offset, AlignUp(gone.bytes));
    }
    if (blocks[i].bytes > 0) {
      blocks[i].offset = free.Take(AlignUp(blocks[i].bytes));
    }
  }
  return free.top();
}

}  // namespace weir
