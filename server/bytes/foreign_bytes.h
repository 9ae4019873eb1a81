// Bytes that lie in somebody else's memory and are lent to a reply until it is
// sent. A plain value: whoever has it last calls release, exactly once, on any
// thread.
#pragma once

#include <cstddef>

namespace weir {

struct ForeignBytes {
  using ReleaseFn = void (*)(void* arg);

  const void* data = nullptr;
  size_t size = 0;
  ReleaseFn release = nullptr;
  void* arg = nullptr;
  size_t beside = 0;  // more bytes that cannot be freed before these
};

// Outputs up to this size are copied: cheaper than a slice of their own.
inline constexpr size_t kCopiedReplyBytes = 1024;

}  // namespace weir
