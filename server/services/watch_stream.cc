#include "server/services/watch_stream.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/typed_method.h"
#include "server/services/space_header.h"
#include "server/services/work_status.h"
#include "server/spaces/kept_work.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

constexpr int kMaxWorks = 1024;
// Of one message.
constexpr int kMaxNews = 64;

// One stream, from its beginning to its end, with which it deletes itself. On
// the call's I/O thread, but for Wake.
class WatchStream {
 public:
  static void Begin(ServiceContext* context, ServerCall& call) {
    auto self = std::make_unique<WatchStream>(context, call);
    const absl::Status status = self->Read();
    if (!status.ok()) return call.Fail(status);
    // It only waits from here on, which is bounded otherwise.
    call.Launched();
    self.release()->Start();
  }

  WatchStream(ServiceContext* context, ServerCall& call)
      : context_(*context), call_(call) {}

 private:
  struct Watched {
    uint64_t number = 0;
    std::shared_ptr<KeptWork> work;
    uint64_t watch = 0;  // 0: none
    v1::WorkState told = v1::WORK_STATE_UNSPECIFIED;
    bool ended = false;  // and that was told
  };

  absl::Status Read() {
    v1::WatchRequest request;
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call_));
    WEIR_RETURN_IF_ERROR(ParseMessage(call_.request(), &request));
    if (request.works_size() == 0 || request.works_size() > kMaxWorks) {
      return InvalidField(
          "works",
          absl::StrCat(request.works_size(),
                       " works are named; it takes from 1 to ", kMaxWorks));
    }
    WEIR_ASSIGN_OR_RETURN(full_, ReadsDetails(request.report()));
    WEIR_ASSIGN_OR_RETURN(space_, RequireSpace(context_, call_));
    for (int i = 0; i < request.works_size(); ++i) {
      auto work = space_->works().Find(request.works(i));
      if (!work.ok()) {
        return WithField(work.status(), absl::StrCat("works[", i, "]"));
      }
      works_.push_back({.number = request.works(i), .work = *std::move(work)});
    }
    WEIR_ASSIGN_OR_RETURN(share_, space_->account().Take(Holding::kWaits));
    return call_.Charge(works_.size() * sizeof(Watched));
  }

  void Start() {
    {
      // All of them are news.
      const MutexLock lock(&mu_);
      open_ = works_.size();
      is_news_.assign(works_.size(), true);
      for (size_t i = 0; i < works_.size(); ++i) news_.push_back(i);
    }
    for (size_t i = 0; i < works_.size(); ++i) {
      works_[i].watch = works_[i].work->Watch([this, i] { Wake(i); });
    }
    // Of one that has left by now, OnCancel would tell inside.
    gone_ = call_.cancelled();
    if (!gone_) {
      call_.OnCancel(
          [](ServerCall&, void* self) {
            static_cast<WatchStream*>(self)->gone_ = true;
            static_cast<WatchStream*>(self)->GoOn(/*was_woken=*/false);
          },
          this);
    }
    GoOn(/*was_woken=*/false);
  }

  // There is news of work `i`. Any thread.
  void Wake(size_t i) {
    const MutexLock lock(&mu_);
    if (!is_news_[i]) {
      is_news_[i] = true;
      news_.push_back(i);
    }
    if (std::exchange(woken_, true)) return;
    call_.Resume(
        [](ServerCall&, void* self) {
          static_cast<WatchStream*>(self)->GoOn(/*was_woken=*/true);
        },
        this);
  }

  // Sends what is new, or ends. Wherever it returns, somebody comes back: a
  // Resume that is on its way, the end of a write, news, or the caller's
  // leaving.
  void GoOn(bool was_woken) {
    if (was_woken) {
      const MutexLock lock(&mu_);
      woken_ = false;
    }
    if (writes_ && !gone_) return;
    v1::WatchResponse message;
    if (!gone_) message = TakeNews();
    if (gone_ || (message.works_size() == 0 && open_ == 0)) return EndOnce();
    if (message.works_size() == 0) return;
    ReplyBuffer bytes;
    bytes.AppendCopy(message.SerializeAsString());
    writes_ = true;
    call_.Write(
        std::move(bytes),
        [](ServerCall&, void* self) {
          static_cast<WatchStream*>(self)->writes_ = false;
          static_cast<WatchStream*>(self)->GoOn(/*was_woken=*/false);
        },
        this);
  }

  v1::WatchResponse TakeNews() {
    v1::WatchResponse message;
    while (message.works_size() < kMaxNews) {
      size_t i = 0;
      {
        const MutexLock lock(&mu_);
        if (news_.empty()) break;
        i = news_.front();
        news_.pop_front();
        is_news_[i] = false;
      }
      Watched& watched = works_[i];
      if (watched.ended) continue;
      v1::WorkStatus status = StatusOf(context_, *watched.work, full_);
      if (status.state() == watched.told) continue;
      watched.told = status.state();
      if (status.has_report()) {
        watched.ended = true;
        --open_;
      }
      v1::WatchedWork* const news = message.add_works();
      news->set_work(watched.number);
      *news->mutable_status() = std::move(status);
    }
    return message;
  }

  // Nobody wakes it any more; a Resume that is on its way comes here again.
  void EndOnce() {
    for (Watched& each : works_) {
      if (each.watch != 0) each.work->Unwatch(std::exchange(each.watch, 0));
    }
    {
      const MutexLock lock(&mu_);
      if (woken_) return;
    }
    ServerCall& call = call_;
    const bool gone = gone_;
    delete this;
    call.Fail(gone ? absl::CancelledError("the caller has gone")
                   : absl::OkStatus());
  }

  ServiceContext& context_;
  ServerCall& call_;
  SpaceUse space_;
  Account::Share share_;  // of calls that wait
  bool full_ = false;
  std::vector<Watched> works_;
  size_t open_ = 0;  // of which the end was not told
  bool writes_ = false;
  bool gone_ = false;

  Mutex mu_;
  bool woken_ WEIR_GUARDED_BY(mu_) = false;  // a Resume is on its way
  // Places of works in the list; each once.
  std::deque<size_t> news_ WEIR_GUARDED_BY(mu_);
  std::vector<bool> is_news_ WEIR_GUARDED_BY(mu_);
};

}  // namespace

MethodHandler WatchHandler(ServiceContext* context) {
  return [context](ServerCall& call) { WatchStream::Begin(context, call); };
}

}  // namespace weir
