// What a handler does that takes long where a message or a reply is large: to
// parse it, to check, join or copy its bytes. An I/O thread would do that for
// some hundred milliseconds while all its other calls wait.
#pragma once

#include <cstddef>

#include "kernels/eval/executor.h"
#include "server/rpc/server_call.h"

namespace weir {

// A step that reads or writes more than this is a long one.
inline constexpr size_t kLongStepBytes = size_t{1} << 20;

// From the call's I/O thread: runs (self->*kWork)() and then (self->*kNext)(),
// both before it returns if `bytes` are no long step. Otherwise the work runs
// on `beside`, which outlives the call, and the other on the I/O thread again;
// until then nobody else may resume or answer the call. The work must not
// answer it; it may use its arena and Charge, and look at cancelled().
template <auto kWork, auto kNext, typename T>
void RunStep(ServerCall& call, Executor& beside, size_t bytes, T* self) {
  if (bytes <= kLongStepBytes) {
    (self->*kWork)();
    return (self->*kNext)();
  }
  beside.Post([&call, self] {
    (self->*kWork)();
    call.Resume(
        [](ServerCall&, void* arg) { (static_cast<T*>(arg)->*kNext)(); }, self);
  });
}

}  // namespace weir
