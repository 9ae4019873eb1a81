#include "server/services/commands/stream_commands.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/bytes/arena_ptr.h"
#include "server/rpc/typed_method.h"
#include "server/services/commands/in_space.h"
#include "server/services/failure_proto.h"
#include "server/spaces/kept_stream.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

constexpr int kMaxSources = 64;

// What a stream's lane is counted by until it has gone back.
struct Counted {
  StreamPool::Keeping keeping;
  Account::Share share;
};

void FillInfo(const NamedStream& stream, v1::StreamInfo* info) {
  info->set_id(stream.stream().id());
  info->set_pool(stream.pool().options().name);
  info->set_priority(stream.stream().priority());
  info->set_lease_generation(stream.lane().generation());
  info->set_device_uuid(stream.engine().device().info().uuid);
}

// One acquisition, which may wait for a stream. Lives in its call's arena until
// the answer.
class AcquireCall {
 public:
  AcquireCall(ServiceContext* context, ServerCall& call)
      : context_(context), call_(call) {}

  static void Begin(ArenaPtr<AcquireCall> self) {
    AcquireCall* const acquire = self.get();
    acquire->self_ = std::move(self);
    const absl::Status status = acquire->Read();
    if (!status.ok()) return acquire->Fail(status);
    if (acquire->stream_ != nullptr) return acquire->Answer();
    acquire->Start();
  }

 private:
  absl::Status Read() {
    v1::StreamAcquire request;
    WEIR_RETURN_IF_ERROR(CheckSmallCommand(call_));
    WEIR_RETURN_IF_ERROR(ParseMessage(call_.request(), &request));
    WEIR_RETURN_IF_ERROR(ReadSettings(request));
    WEIR_ASSIGN_OR_RETURN(space_, RequireSpace(*context_, call_));
    auto claim = space_->streams().Take(request.stream());
    if (!claim.ok()) {
      if (HasThat(request.stream())) return absl::OkStatus();
      return WithField(claim.status(), "stream");
    }
    claim_ = *std::move(claim);
    WEIR_ASSIGN_OR_RETURN(counted_.share,
                          space_->account().Take(Holding::kStreams));
    WEIR_ASSIGN_OR_RETURN(counted_.keeping, pool_->Keep());
    return CheckWait(request);
  }

  absl::Status ReadSettings(const v1::StreamAcquire& request) {
    if (!v1::StreamAcquire::WhenFull_IsValid(request.when_full())) {
      return InvalidField("when_full",
                          absl::StrCat(request.when_full(),
                                       " is not a way to meet a full stream"));
    }
    if (request.max_in_flight() > Stream::kMaxUnfinished) {
      return InvalidField(
          "max_in_flight",
          absl::StrCat(request.max_in_flight(), " is more than the ",
                       Stream::kMaxUnfinished, " that a stream may have"));
    }
    if (request.timeout_ns() < 0) {
      return InvalidField("timeout_ns",
                          absl::StrCat(request.timeout_ns(), " is negative"));
    }
    WEIR_ASSIGN_OR_RETURN(settings_.engine,
                          context_->engines.Find(request.device()));
    settings_.priority = request.priority();
    if (request.max_in_flight() > 0) {
      settings_.options.max_in_flight = request.max_in_flight();
    }
    settings_.options.refuses =
        request.when_full() == v1::StreamAcquire::WHEN_FULL_REFUSE;
    auto pool = settings_.engine->pools().OfPriority(request.priority());
    if (!pool.ok()) return WithField(pool.status(), "priority");
    pool_ = *pool;
    return absl::OkStatus();
  }

  // Whether the space has the stream that is asked for.
  bool HasThat(uint64_t number) {
    const auto kept = space_->streams().Find(number);
    if (!kept.ok() || !((*kept)->settings() == settings_)) return false;
    stream_ = (*kept)->stream();
    return true;
  }

  absl::Status CheckWait(const v1::StreamAcquire& request) {
    const Nanos now = NowNanos();
    deadline_ = std::min(
        call_.deadline(),
        now + absl::ToInt64Nanoseconds(settings_.engine->options().max_wait));
    if (request.timeout_ns() > 0) {
      deadline_ = std::min(deadline_, now + request.timeout_ns());
      WEIR_ASSIGN_OR_RETURN(waits_, space_->account().Take(Holding::kWaits));
      return absl::OkStatus();
    }
    const StreamPoolStats stats = pool_->stats();
    if (stats.waiting == 0 && (stats.idle > 0 || stats.created() < stats.max)) {
      return absl::OkStatus();
    }
    return WithRetryAfter(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       "all ", stats.max, " streams of ", pool_->options().name,
                       " are in use; set timeout_ns to wait for one")),
                   "STREAM_POOL_EXHAUSTED"),
        absl::Milliseconds(10));
  }

  void Start() {
    wait_ =
        pool_->Acquire(deadline_, [this](absl::StatusOr<StreamLease> lease) {
          lease_ = std::move(lease);
          call_.Resume(
              [](ServerCall&, void* self) {
                static_cast<AcquireCall*>(self)->Acquired();
              },
              this);
        });
    call_.OnCancel(
        [](ServerCall&, void* self) {
          auto* const acquire = static_cast<AcquireCall*>(self);
          acquire->pool_->CancelWait(acquire->wait_);
        },
        this);
  }

  void Acquired() {
    call_.ForgetCancel();
    if (!lease_.ok()) return Fail(lease_.status());
    stream_ = NamedStream::Create(
        settings_.engine, *std::move(lease_), settings_.options,
        std::make_shared<Counted>(std::move(counted_)));
    if (!claim_.Fill(std::make_shared<KeptStream>(settings_, stream_))) {
      return Fail(SpaceNotFound(space_->id()));
    }
    Answer();
  }

  void Answer() {
    v1::StreamAcquired response;
    FillInfo(*stream_, response.mutable_stream());
    ServerCall& call = call_;
    { const ArenaPtr<AcquireCall> self = std::move(self_); }
    ReplyMessage(call, response, ReplyRemedy<v1::StreamAcquire>());
  }

  void Fail(const absl::Status& error) {
    ServerCall& call = call_;
    const absl::Status kept = error;
    { const ArenaPtr<AcquireCall> self = std::move(self_); }
    call.Fail(kept);
  }

  ServiceContext* const context_;
  ServerCall& call_;
  ArenaPtr<AcquireCall> self_;
  SpaceUse space_;
  NumberTable<KeptStream>::Claim claim_;
  KeptStream::Settings settings_;
  StreamPool* pool_ = nullptr;
  Counted counted_;
  Account::Share waits_;
  Nanos deadline_ = kNoDeadline;
  uint64_t wait_ = 0;
  absl::StatusOr<StreamLease> lease_ = StreamLease();
  std::shared_ptr<NamedStream> stream_;  // once it is there
};

absl::Status ReleaseStream(Space& space, const v1::StreamRelease& request) {
  return space.streams().Remove(request.stream()).status();
}

absl::Status JoinStreams(Space& space, const v1::StreamJoin& request,
                         v1::StreamJoined* response) {
  if (request.sources_size() > kMaxSources) {
    return InvalidField(
        "sources", absl::StrCat(request.sources_size(), " are more than the ",
                                kMaxSources, " that one command may join"));
  }
  WEIR_ASSIGN_OR_RETURN(const auto target,
                        space.streams().Find(request.stream()));
  NamedStream& stream = *target->stream();
  for (const uint64_t number : request.sources()) {
    v1::StreamEdge& edge = *response->add_edges();
    edge.set_source(number);
    const auto source = space.streams().Find(number);
    if (!source.ok()) {
      *edge.mutable_failure() = ToFailure(source.status());
      continue;
    }
    const Point now = (*source)->stream()->Now();
    if (*source == target || now.Outcome().has_value()) {
      edge.set_kind(v1::InsertedWait::KIND_ALREADY_REACHED);
      continue;
    }
    const bool on_device =
        (*source)->settings().engine == target->settings().engine &&
        stream.engine().device().streams_wait();
    edge.set_kind(on_device ? v1::InsertedWait::KIND_DEVICE_SIDE
                            : v1::InsertedWait::KIND_HOST_SIDE);
    stream.ComeAfter(now);
  }
  return absl::OkStatus();
}

absl::Status ReserveSlot(Space& space, const v1::StreamReserve& request,
                         v1::StreamReserved* response) {
  WEIR_ASSIGN_OR_RETURN(const auto kept,
                        space.streams().Find(request.stream()));
  const Nanos longest =
      absl::ToInt64Nanoseconds(kept->settings().engine->options().max_wait);
  if (request.timeout_ns() < 0 || request.timeout_ns() > longest) {
    return InvalidField(
        "timeout_ns",
        absl::StrCat(request.timeout_ns(), " is not between 0 and ", longest));
  }
  WEIR_ASSIGN_OR_RETURN(StreamPlace place,
                        kept->stream()->Take(/*reserved=*/true));
  response->set_before(place.number() - 1);
  const Nanos timeout =
      request.timeout_ns() > 0 ? request.timeout_ns() : longest;
  const absl::Status reserved = kept->slots().Reserve(
      request.slot(), std::move(place), NowNanos() + timeout);
  return reserved.ok() ? reserved : WithField(reserved, "slot");
}

}  // namespace

void AddStreamCommands(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(Command::kStreamAcquire, [context](ServerCall& call) {
    AcquireCall::Begin(MakeInArena<AcquireCall>(&call.arena(), context, call));
  });
  handlers->Add(
      Command::kStreamRelease,
      InSpace<v1::StreamRelease, v1::StreamReleased>(context, ReleaseStream));
  handlers->Add(Command::kStreamJoin, InSpace<v1::StreamJoin, v1::StreamJoined>(
                                          context, JoinStreams));
  handlers->Add(
      Command::kStreamReserve,
      InSpace<v1::StreamReserve, v1::StreamReserved>(context, ReserveSlot));
}

}  // namespace weir
