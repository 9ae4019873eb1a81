// A call's way into a context: at once, or in line behind the handler that is
// inside. Belongs to its call, and is used on the call's I/O thread.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/eval/eval_context.h"
#include "server/rpc/server_call.h"

namespace weir {

class ContextEntry {
 public:
  using Then = void (*)(absl::StatusOr<Activation> activation, void* arg);

  // The call outlives it.
  explicit ContextEntry(ServerCall* call) : call_(call) {}

  // Once; as the call's session, or as a handler of its own.
  // `then(activation, arg)` runs once, on the I/O thread, perhaps inside,
  // and may end this object; until then nobody else may resume or answer the
  // call, or ask to be told if its caller leaves. Errors as
  // EvalContext::Enter; with `queue` as EvalContext::EnterQueued, until
  // `deadline` and no longer than the engine lets anybody wait, and CANCELLED
  // if the caller leaves meanwhile.
  void Run(std::shared_ptr<EvalContext> context, bool queue, Nanos deadline,
           Then then, void* arg);

 private:
  void Entered();
  void CallerLeft();

  ServerCall* const call_;
  std::shared_ptr<EvalContext> context_;
  Then then_ = nullptr;
  void* arg_ = nullptr;
  Occupancy::EntryId entry_ = 0;  // while it stands in line
  absl::StatusOr<Activation> activation_ = Activation();
};

}  // namespace weir
