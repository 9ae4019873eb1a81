#include "server/services/synchronize_call.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/admin.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/typed_method.h"
#include "server/services/failure_proto.h"

namespace weir {
namespace {

// Lives in the call's arena until the answer.
class SynchronizeCall {
 public:
  SynchronizeCall(const ServiceContext* context, ServerCall& call)
      : context_(context), call_(call) {}

  static void Begin(ArenaPtr<SynchronizeCall> self) {
    SynchronizeCall* const begun = self.get();
    begun->self_ = std::move(self);
    const absl::Status status = begun->Read();
    if (!status.ok()) return begun->End(status);
    begun->Start();
  }

 private:
  struct Joined {
    const StreamPool* pool = nullptr;
    Point last = {};
    absl::Status status = absl::OkStatus();
    uint64_t wait = 0;
  };

  absl::Status Read() {
    v1::SynchronizeRequest request;
    WEIR_RETURN_IF_ERROR(ParseMessage(call_.request(), &request));
    if (request.timeout_ns() < 0) {
      return InvalidField("timeout_ns",
                          absl::StrCat(request.timeout_ns(), " is negative"));
    }
    const Nanos now = NowNanos();
    deadline_ = std::min(
        call_.deadline(),
        now + absl::ToInt64Nanoseconds(Dispatching().options().max_wait));
    if (request.timeout_ns() > 0) {
      deadline_ = std::min(deadline_, now + request.timeout_ns());
    }
    std::vector<Engine*> engines = context_->engines.all();
    if (!request.device().empty()) {
      WEIR_ASSIGN_OR_RETURN(Engine* const one,
                            context_->engines.Find(request.device()));
      engines = {one};
    }
    for (Engine* const engine : engines) {
      for (const StreamPool* const pool : engine->pools().all()) {
        for (Point& last : pool->Running()) {
          joined_.push_back({.pool = pool, .last = std::move(last)});
        }
      }
    }
    return absl::OkStatus();
  }

  // Parks the waits, whatever devices the streams are on.
  Engine& Dispatching() const { return context_->engines.main(); }

  void Start() {
    left_.store(joined_.size() + 1);  // one is this function's
    for (Joined& each : joined_) {
      each.wait = Dispatching().dispatcher().WhenReady(
          {&each.last, 1}, /*device=*/nullptr, deadline_,
          [this, &each](absl::Status status) {
            each.status = std::move(status);
            OneLess();
          });
    }
    call_.OnCancel(
        [](ServerCall&, void* self) {
          auto* const cancelled = static_cast<SynchronizeCall*>(self);
          for (const Joined& each : cancelled->joined_) {
            cancelled->Dispatching().dispatcher().CancelWait(each.wait);
          }
        },
        this);
    OneLess();
  }

  void OneLess() {
    if (left_.fetch_sub(1) != 1) return;
    call_.Resume(
        [](ServerCall&, void* self) {
          static_cast<SynchronizeCall*>(self)->Answer();
        },
        this);
  }

  void Answer() {
    call_.ForgetCancel();
    size_t not_reached = 0;
    absl::Status ended;
    v1::SynchronizeResponse response;
    for (const Joined& each : joined_) {
      v1::SynchronizedStream& stream = *response.add_streams();
      stream.set_id(each.last.timeline->owner().number);
      stream.set_pool(each.pool->options().name);
      stream.set_value(each.last.value);
      if (each.status.ok()) continue;
      // Of the work, or of the wait.
      if (!IsInherited(each.status)) {
        ++not_reached;
        ended = each.status;
      }
      *stream.mutable_failure() = ToFailure(each.status);
    }
    if (not_reached == 0) {
      ServerCall& call = call_;
      { const ArenaPtr<SynchronizeCall> self = std::move(self_); }
      return ReplyMessage(call, response,
                          ReplyRemedy<v1::SynchronizeRequest>());
    }
    End(Annotate(ended, absl::StrCat(not_reached, " of ", joined_.size(),
                                     " streams are at work yet: ")));
  }

  void End(const absl::Status& error) {
    ServerCall& call = call_;
    const absl::Status kept = error;
    { const ArenaPtr<SynchronizeCall> self = std::move(self_); }
    call.Fail(kept);
  }

  const ServiceContext* const context_;
  ServerCall& call_;
  ArenaPtr<SynchronizeCall> self_;
  std::vector<Joined> joined_;
  Nanos deadline_ = kNoDeadline;
  Atomic<size_t> left_{0};
};

}  // namespace

void HandleSynchronize(const ServiceContext* context, ServerCall& call) {
  SynchronizeCall::Begin(
      MakeInArena<SynchronizeCall>(&call.arena(), context, call));
}

}  // namespace weir
