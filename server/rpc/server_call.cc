#include "server/rpc/server_call.h"

#include <utility>

namespace weir {

void ServerCall::OnCancel(ResumeFn fn, void* arg) {
  if (cancelled()) {
    fn(*this, arg);
    return;
  }
  on_cancel_ = fn;
  on_cancel_arg_ = arg;
}

void ServerCall::SetCancelled() {
  cancelled_.store(true, std::memory_order_release);
  if (ResumeFn fn = std::exchange(on_cancel_, nullptr)) {
    fn(*this, on_cancel_arg_);
  }
}

}  // namespace weir
