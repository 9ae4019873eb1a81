// Between the tensors of a message and those of a work: inputs that point into
// the received slices, outputs that point into the work's results. Used on the
// call's I/O thread, or beside it while it waits (long_step.h).
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/eval/work.h"
#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/bytes/foreign_bytes.h"
#include "server/services/call_evaluation.h"

namespace weir {

// `raw` as input `i` of the work. Strings are split into views; bytes that the
// host reads are joined if they lie in several slices, others if the slices are
// small; booleans are copied if a
// byte is neither 0 nor 1, and become so. Nothing else is copied.
// INVALID_ARGUMENT for a shape that is none, and for more or fewer bytes than
// type and shape need.
absl::Status FillInput(DType dtype, std::span<const int64_t> shape,
                       const ByteView& raw, bool on_host, CallArena* arena,
                       InputSource* input);

// The bytes of a done work's inline outputs, to be referenced by a reply.
// Strings are written out in the wire form. Outputs are copied out of the
// pinned memory where they are a small part of the results, or where replies
// that are not sent yet hold much of it, or refused where there is no room for
// the copy. Every output is asked for exactly once.
class OutputBytes {
 public:
  // `wanted` are indices of inline outputs, and stay. What is copied is settled
  // here. On the call's I/O thread.
  OutputBytes(CallEvaluation& evaluation, std::span<const size_t> wanted);

  // What a step counts with that calls Prepare and Take: what they copy, at
  // most, and the outputs.
  size_t step_bytes() const { return step_bytes_; }

  // First. `described`: what the reply has beside them, which is copied too.
  // RESOURCE_EXHAUSTED if they are more than a reply may have, or if there is
  // no room for what is copied of it.
  absl::Status Prepare(size_t described);

  ForeignBytes Take(size_t output);

 private:
  CallEvaluation& evaluation_;
  const std::span<const size_t> wanted_;
  CallEvaluation::Results results_;
  size_t step_bytes_ = 0;
  bool small_part_ = false;  // of the results
  bool copies_ = false;
  size_t beside_ = 0;  // of the results, what no reference says
};

}  // namespace weir
