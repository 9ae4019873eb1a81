// How much the digests of one plan's inputs (OpDef::digest) may read. A plain
// value, for one thread.
#pragma once

#include <cstdint>

namespace weir {

// What the digests of one plan's inputs read in all, counted in parts of some
// nanoseconds: a segment of a picture's header is one.
inline constexpr int64_t kMaxDigestParts = int64_t{1} << 20;
// The same on a thread that others wait for.
inline constexpr int64_t kQuickDigestParts = int64_t{1} << 16;
class DigestBudget {
 public:
  explicit DigestBudget(int64_t parts = kMaxDigestParts) : left_(parts) {}
  // False, also from then on, if there are not so many left.
  bool Take(int64_t parts) {
    return (left_ = left_ < parts ? -1 : left_ - parts) >= 0;
  }

 private:
  int64_t left_;
};

}  // namespace weir
