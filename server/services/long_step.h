// What a handler does that takes long where a message or a reply is large or
// has many parts: to parse it, to check, join or copy its bytes, to list its
// tensors. An I/O thread would do that for some hundred milliseconds while all
// its other calls wait.
#pragma once

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/long_step_bytes.h"
#include "server/rpc/server_call.h"
#include "server/scheduling/fair_threads.h"

namespace weir {

// What may be all fields of two bytes, and is read field by field, is a long
// step from this many bytes on.
inline constexpr size_t kLongStepFieldBytes = size_t{64} << 10;
inline constexpr size_t kFieldByteWeight = kLongStepBytes / kLongStepFieldBytes;

// What a step counts with that reads the call's message, and handles so many
// tensors. One that was compressed costs its sender a thousandth of what it
// takes to read it, if it is all fields.
inline size_t ReadingBytes(const ServerCall& call, size_t tensors = 0) {
  return call.request().size() * (call.inflated() ? kFieldByteWeight : 1) +
         tensors * kLongStepTensorBytes;
}

// What RunStep runs, of an object that stays until `next`.
struct LongStep {
  absl::Status (*work)(void* self);
  void (*next)(void* self, absl::Status status);
  void* self;
};
void StartLongStep(ServerCall& call, FairThreads& beside, const LongStep& step);

// From the call's I/O thread: runs (self->*kWork)(), which returns a status,
// and (self->*kNext)(that), before it returns if `bytes` are no long step.
// Otherwise the work runs on `beside`, which outlives the call, in its peer's
// turn and if the call is still wanted then, and the other on the I/O thread
// again; until then nobody else may resume or answer the call, or ask to be
// told if its caller leaves. A caller who leaves before the work has begun, and
// a deadline, the caller's or the longest wait of `beside`, end that at once
// with their status. The work must not answer the call; it may use its arena
// and Charge.
template <auto kWork, auto kNext, typename T>
void RunStep(ServerCall& call, FairThreads& beside, size_t bytes, T* self) {
  if (bytes <= kLongStepBytes) {
    return (self->*kNext)((self->*kWork)());
  }
  StartLongStep(
      call, beside,
      {.work = [](void* self) { return (static_cast<T*>(self)->*kWork)(); },
       .next =
           [](void* self, absl::Status status) {
             (static_cast<T*>(self)->*kNext)(std::move(status));
           },
       .self = self});
}

}  // namespace weir
