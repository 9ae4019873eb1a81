// Handlers of commands that occupy a context of the call's space, and are done
// at once when they are in it.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/eval_context.h"
#include "proto/weir/v1/evaluation.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/typed_method.h"
#include "server/services/context_entry.h"
#include "server/services/service_context.h"
#include "server/services/space_header.h"
#include "server/spaces/kept_context.h"
#include "server/spaces/space.h"

namespace weir {

// Where such a command is carried out.
struct InsideContext {
  const ServiceContext& context;
  Space& space;
  KeptContext& kept;
  Activation& activation;
};

template <typename Request, typename Response>
using ContextHandle = absl::Status (*)(const InsideContext& inside,
                                       const Request& request,
                                       Response* response);

// One call. Lives in its arena until the answer.
template <typename Request, typename Response>
class ContextCall {
 public:
  using Handle = ContextHandle<Request, Response>;

  ContextCall(const ServiceContext* context, Handle handle, ServerCall& call)
      : context_(*context), handle_(handle), call_(call), entry_(&call) {}

  static void Begin(ArenaPtr<ContextCall> self) {
    ContextCall* const call = self.get();
    call->self_ = std::move(self);
    if (const absl::Status status = call->Read(); !status.ok()) {
      return call->End(status);
    }
    call->entry_.Run(
        call->kept_->context(), call->Queues(), call->call_.deadline(),
        [](absl::StatusOr<Activation> activation, void* arg) {
          static_cast<ContextCall*>(arg)->Entered(std::move(activation));
        },
        call);
  }

 private:
  static constexpr bool kMayQueue = requires(const Request& request) {
    request.if_busy();
  };

  // For the context, if another handler is in it.
  bool Queues() const {
    if constexpr (kMayQueue) {
      const int32_t if_busy = request_.if_busy();
      return if_busy == v1::CONTEXT_CONFLICT_QUEUE ||
             (if_busy == 0 && kept_->settings().queue);
    }
    return false;
  }

  absl::Status Read() {
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call_));
    WEIR_RETURN_IF_ERROR(ParseMessage(call_.request(), &request_));
    if constexpr (kMayQueue) {
      if (!v1::ContextConflict_IsValid(request_.if_busy())) {
        return InvalidField(
            "if_busy",
            absl::StrCat(request_.if_busy(),
                         " is not a way to meet a context that is in use"));
      }
    }
    WEIR_ASSIGN_OR_RETURN(space_, RequireSpace(context_, call_));
    auto kept = space_->FindContext(request_.context(), NowNanos());
    if (!kept.ok()) return WithField(kept.status(), "context");
    kept_ = *std::move(kept);
    return absl::OkStatus();
  }

  void Entered(absl::StatusOr<Activation> activation) {
    if (!activation.ok()) return End(activation.status());
    const absl::Status status =
        handle_({context_, *space_, *kept_, *activation}, request_, &response_);
    activation->Leave();
    End(status);
  }

  void End(const absl::Status& status) {
    ServerCall& call = call_;
    const absl::Status kept = status;
    const Response response = std::move(response_);
    { const ArenaPtr<ContextCall> self = std::move(self_); }
    if (!kept.ok()) return call.Fail(kept);
    ReplyMessage(call, response, ReplyRemedy<Request>());
  }

  const ServiceContext& context_;
  const Handle handle_;
  ServerCall& call_;
  ArenaPtr<ContextCall> self_;
  Request request_;
  Response response_;
  SpaceUse space_;
  std::shared_ptr<KeptContext> kept_;
  ContextEntry entry_;
};

// For a request with `context`; without `if_busy` it is refused while another
// handler is in that.
template <typename Request, typename Response>
MethodHandler InContext(const ServiceContext* context,
                        ContextHandle<Request, Response> handle) {
  using Call = ContextCall<Request, Response>;
  return [context, handle](ServerCall& call) {
    Call::Begin(MakeInArena<Call>(&call.arena(), context, handle, call));
  };
}

}  // namespace weir
