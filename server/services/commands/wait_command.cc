#include "server/services/commands/wait_command.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/dispatcher.h"
#include "proto/weir/v1/command.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/typed_method.h"
#include "server/services/space_header.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

constexpr int kMaxEntries = 1024;
// All that wait for a timeline are told at once.
constexpr int kMaxPoints = 64;
// About what a wait for one thing takes.
constexpr uint64_t kEntryRoom = 320;

std::string EntryField(const char* list, int i) {
  return absl::StrCat(list, "[", i, "]");
}

// One wait of a call. Lives in its arena until the answer.
class WaitCall {
 public:
  WaitCall(ServiceContext* context, ServerCall& call)
      : context_(context), call_(call) {}

  static void Begin(ArenaPtr<WaitCall> self) {
    WaitCall* const wait = self.get();
    wait->self_ = std::move(self);
    const absl::Status status = wait->Read();
    if (!status.ok()) return wait->End(status);
    wait->Start();
  }

 private:
  absl::Status Read() {
    v1::Wait request;
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call_));
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
      deadline_ = std::min(deadline_, SaturatingAdd(now, request.timeout_ns()));
    }
    const int entries =
        request.points_size() + request.works_size() + request.tensors_size();
    if (entries > kMaxEntries) {
      return absl::InvalidArgumentError(
          absl::StrCat("it waits for ", entries, " points, works and tensors, ",
                       "of which there may be ", kMaxEntries));
    }
    if (request.points_size() > kMaxPoints) {
      return InvalidField(
          "points",
          absl::StrCat("it waits for ", request.points_size(),
                       " points, of which there may be ", kMaxPoints));
    }
    WEIR_ASSIGN_OR_RETURN(space_, RequireSpace(*context_, call_));
    WEIR_ASSIGN_OR_RETURN(
        bytes_,
        space_->account().Take(Holding::kInputBytes,
                               kEntryRoom * static_cast<uint64_t>(entries)));
    if (call_.has_place()) {
      WEIR_ASSIGN_OR_RETURN(share_, space_->account().Take(Holding::kWaits));
    }
    WEIR_RETURN_IF_ERROR(FindPoints(request));
    // What was named twice, or is the end of one work, is waited for once.
    const auto place = [](const Point& point) {
      return std::pair(point.timeline.get(), point.value);
    };
    std::sort(points_.begin(), points_.end(),
              [&](const Point& a, const Point& b) {
                return std::less<>()(place(a), place(b));
              });
    points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
    return absl::OkStatus();
  }

  absl::Status FindPoints(const v1::Wait& request) {
    for (int i = 0; i < request.points_size(); ++i) {
      const auto kept = space_->timelines().Find(request.points(i).timeline());
      if (!kept.ok()) {
        return WithField(kept.status(), EntryField("points", i) + ".timeline");
      }
      points_.push_back({HoldTimeline(*kept), request.points(i).value()});
    }
    for (int i = 0; i < request.works_size(); ++i) {
      const auto kept = space_->works().Find(request.works(i));
      if (!kept.ok()) {
        return WithField(kept.status(), EntryField("works", i));
      }
      // What ends between the two is found by the second.
      points_.push_back((*kept)->ended());
      const auto end = (*kept)->end();
      if (end.has_value() && !end->status.ok()) return end->status;
    }
    for (int i = 0; i < request.tensors_size(); ++i) {
      const auto kept = space_->tensors().Find(request.tensors(i));
      if (!kept.ok()) {
        return WithField(kept.status(), EntryField("tensors", i));
      }
      if (absl::Status written = (*kept)->CheckWritten(); !written.ok()) {
        return WithField(written, EntryField("tensors", i));
      }
      points_.push_back((*kept)->made());
      const absl::Status failure = (*kept)->failure();
      if (!failure.ok()) return failure;
    }
    return absl::OkStatus();
  }

  // Its dispatcher parks the wait, whatever devices the points are on.
  Engine& Dispatching() const { return context_->engines.main(); }

  void Start() {
    Dispatcher& dispatcher = Dispatching().dispatcher();
    wait_ = dispatcher.WhenReady(
        points_, /*device=*/nullptr, deadline_, [this](absl::Status status) {
          status_ = std::move(status);
          call_.Resume(
              [](ServerCall&, void* self) {
                auto* wait = static_cast<WaitCall*>(self);
                wait->End(wait->status_);
              },
              this);
        });
    call_.Launched();
    call_.OnCancel(
        [](ServerCall&, void* self) {
          auto* const wait = static_cast<WaitCall*>(self);
          wait->Dispatching().dispatcher().CancelWait(wait->wait_);
        },
        this);
  }

  void End(const absl::Status& status) {
    ServerCall& call = call_;
    const absl::Status kept = status;
    { const ArenaPtr<WaitCall> self = std::move(self_); }
    if (!kept.ok()) return call.Fail(kept);
    ReplyMessage(call, v1::Waited(), ReplyRemedy<v1::Wait>());
  }

  ServiceContext* const context_;
  ServerCall& call_;
  ArenaPtr<WaitCall> self_;
  SpaceUse space_;
  Account::Share share_;  // of those that wait
  Account::Share bytes_;
  std::vector<Point> points_;
  Nanos deadline_ = kNoDeadline;
  uint64_t wait_ = 0;
  absl::Status status_;
};

}  // namespace

MethodHandler WaitHandler(ServiceContext* context) {
  return [context](ServerCall& call) {
    WaitCall::Begin(MakeInArena<WaitCall>(&call.arena(), context, call));
  };
}

}  // namespace weir
