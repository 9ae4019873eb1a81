// The bytes of a done work's inline outputs, to be referenced by a reply: what
// is lent, what is copied, and who pays. For one thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/eval/work.h"
#include "server/bytes/foreign_bytes.h"
#include "server/evaluation/reply_room.h"
#include "server/evaluation/work_results.h"

namespace weir {

// RESOURCE_EXHAUSTED, naming the largest output, if the inline outputs of a
// planned work are more than a reply may have. Of text the lengths alone are
// known.
absl::Status CheckPlannedOutputs(const Work& work, const ReplyRoom& room);

// Strings are written out in the wire form. Outputs are copied out of the
// pinned memory where they are a small part of the results, or where replies
// that are not sent yet hold much of it, or refused where there is no room for
// the copy. Every output is asked for exactly once.
class ResultBytes {
 public:
  // `wanted` are indices of inline outputs, and stay. What is copied is settled
  // here.
  ResultBytes(WorkResults& results, std::span<const size_t> wanted);

  // What a step counts with that calls Prepare and Take: what they copy, at
  // most, and the outputs.
  size_t step_bytes() const { return step_bytes_; }

  // First. `described`: what the reply has beside them, which is copied too.
  // RESOURCE_EXHAUSTED if they are more than a reply may have, or if there is
  // no room for what is copied of it.
  absl::Status Prepare(size_t described, ReplyRoom& room);

  // Small ones (kCopiedReplyBytes) stay until the results are cleared, others
  // until they are released.
  ForeignBytes Take(size_t output);

 private:
  WorkResults& results_;
  const std::span<const size_t> wanted_;
  WorkResults::Shared shared_;
  size_t step_bytes_ = 0;
  bool small_part_ = false;  // of the results
  bool copies_ = false;
  size_t beside_ = 0;  // of the results, what no reference says
};

}  // namespace weir
