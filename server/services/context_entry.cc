#include "server/services/context_entry.h"

#include <algorithm>

#include "absl/time/time.h"

namespace weir {

void ContextEntry::Run(std::shared_ptr<EvalContext> context, bool queue,
                       Nanos deadline, Then then, void* arg) {
  const HandlerId handler =
      call_->handler() != 0 ? call_->handler() : NewHandlerId();
  if (!queue) return then(context->Enter(handler), arg);
  context_ = std::move(context);
  then_ = then;
  arg_ = arg;
  const Nanos longest = NowNanos() + absl::ToInt64Nanoseconds(
                                         context_->engine().options().max_wait);
  entry_ =
      context_->EnterQueued(handler, std::min(deadline, longest),
                            [this](absl::StatusOr<Activation> activation) {
                              activation_ = std::move(activation);
                              call_->Resume(
                                  [](ServerCall&, void* self) {
                                    static_cast<ContextEntry*>(self)->Entered();
                                  },
                                  this);
                            });
  call_->OnCancel(
      [](ServerCall&, void* self) {
        static_cast<ContextEntry*>(self)->CallerLeft();
      },
      this);
}

// While it stands in line: if it is not called off any more, Entered comes.
void ContextEntry::CallerLeft() {
  if (!context_->CancelEntry(entry_)) return;
  then_(absl::CancelledError("the caller left while its context was in use"),
        arg_);
}

void ContextEntry::Entered() {
  call_->ForgetCancel();
  then_(std::move(activation_), arg_);
}

}  // namespace weir
