// What a reply may have, and who pays for what is copied into it: a call's
// side of its results. For one thread at a time.
#pragma once

#include <cstddef>

#include "absl/status/status.h"

namespace weir {

class ReplyRoom {
 public:
  // RESOURCE_EXHAUSTED for more bytes than a reply may have.
  virtual absl::Status CheckReply(size_t bytes) const = 0;
  // Counts what a reply will have copied, shortly before it is made.
  // RESOURCE_EXHAUSTED where there is no room for it.
  virtual absl::Status ChargeReply(size_t bytes) = 0;

 protected:
  ~ReplyRoom() = default;
};

}  // namespace weir
