#include "server/rpc/health_service.h"

#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "server/rpc/peer.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

constexpr char kService[] = "grpc.health.v1.Health";

// A HealthCheckRequest.
absl::StatusOr<std::string> ReadService(ServerCall& call) {
  WireReader reader(call.request(), &call.arena());
  std::string_view service;
  while (reader.NextField()) {
    if (reader.number() == 1) {
      service = reader.String("service", HealthService::kMaxMessageBytes);
    } else {
      reader.Skip();
    }
  }
  if (!reader.ok()) return reader.status("HealthCheckRequest");
  return std::string(service);
}

absl::Status TooManyWatches(const char* whose, size_t limit) {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     whose, " has ", limit,
                     " Watch streams open: end some, or call Check")),
                 "TOO_MANY_WATCHES", {{"limit", absl::StrCat(limit)}}),
      absl::Seconds(1));
}

}  // namespace

// One stream, from its beginning to its end, with which it deletes itself. On
// the call's I/O thread, but for Wake.
class HealthService::Watch {
 public:
  Watch(HealthService* service, ServerCall& call, std::string name)
      : service_(service),
        call_(call),
        name_(std::move(name)),
        connection_(call.Connection()) {}

  void Run() {
    absl::Status added;
    {
      const MutexLock lock(&service_->mu_);
      added = service_->Add(this);
    }
    if (!added.ok()) {
      const std::unique_ptr<Watch> self(this);
      return call_.Fail(added);
    }
    call_.OnCancel(
        [](ServerCall&, void* self) {
          static_cast<Watch*>(self)->gone_ = true;
          static_cast<Watch*>(self)->GoOn(/*was_woken=*/false);
        },
        this);
  }

  // What it says may have changed. REQUIRES: the service's mutex.
  void Wake() {
    if (std::exchange(woken_, true)) return;
    call_.Resume(
        [](ServerCall&, void* self) {
          static_cast<Watch*>(self)->GoOn(/*was_woken=*/true);
        },
        this);
  }

  // In the service's list, while it is there.
  std::multimap<std::string_view, Watch*>::iterator place;

  const std::string& name() const { return name_; }
  const std::string& connection() const { return connection_; }
  const std::string& peer() const { return call_.peer(); }

 private:
  // Sends what is new, or ends. Wherever it returns, somebody comes back: a
  // Resume that is on its way, the end of a write, a change, or the caller's
  // leaving.
  void GoOn(bool was_woken) {
    State state = State::kNone;
    bool ends = false;
    {
      const MutexLock lock(&service_->mu_);
      if (was_woken) woken_ = false;
      state = service_->StateOf(name_);
      const bool idle = !writes_ && state == told_;
      ends = gone_ || (service_->stopped_ && idle);
      if (ends && woken_) return;
      if (ends) service_->Remove(this);
    }
    if (ends) {
      const std::unique_ptr<Watch> self(this);
      return call_.Fail(gone_ ? absl::CancelledError("the caller has gone")
                              : absl::UnavailableError("the server ends"));
    }
    if (writes_ || state == told_) return;
    told_ = state;
    writes_ = true;
    call_.Write(
        Message(state),
        [](ServerCall&, void* self) {
          static_cast<Watch*>(self)->writes_ = false;
          static_cast<Watch*>(self)->GoOn(/*was_woken=*/false);
        },
        this);
  }

  HealthService* const service_;
  ServerCall& call_;
  const std::string name_;
  const std::string connection_;
  State told_ = State::kNone;
  bool writes_ = false;
  bool gone_ = false;
  // A Resume is on its way; guarded by the service's mutex.
  bool woken_ = false;
};

void HealthService::Register(MethodTable* table) {
  table->Add(kService, "Check", Traffic::kRare,
             [this](ServerCall& call) { Check(call); });
  table->AddStream(kService, "Watch", Traffic::kRare,
                   [this](ServerCall& call) { BeginWatch(call); });
}

ReplyBuffer HealthService::Message(State state) {
  const char bytes[] = {1 << 3, static_cast<char>(state)};
  ReplyBuffer message;
  message.AppendCopy({bytes, sizeof(bytes)});
  return message;
}

void HealthService::Check(ServerCall& call) {
  const absl::StatusOr<std::string> service = ReadService(call);
  if (!service.ok()) return call.Fail(service.status());
  State state = State::kUnknown;
  {
    const MutexLock lock(&mu_);
    state = StateOf(*service);
  }
  if (state != State::kUnknown) return call.Reply(Message(state));
  call.Fail(absl::NotFoundError(absl::StrCat(
      "no service \"", *service,
      "\": there are \"\", \"live\", \"model/NAME\" and the names of gRPC "
      "services")));
}

void HealthService::BeginWatch(ServerCall& call) {
  absl::StatusOr<std::string> service = ReadService(call);
  if (!service.ok()) return call.Fail(service.status());
  if (absl::Status room = call.Charge(service->size()); !room.ok()) {
    return call.Fail(room);
  }
  (new Watch(this, call, *std::move(service)))->Run();
}

absl::Status HealthService::Add(Watch* watch) {
  if (stopped_) return absl::UnavailableError("the server ends");
  if (watches_.size() >= kMaxWatches) {
    return TooManyWatches("the server", kMaxWatches);
  }
  // The clients of a unix socket have one name.
  if (const std::string& peer = watch->peer(); peer != kUnixPeer) {
    if (of_connection_.Of(watch->connection()) >= kMaxConnectionWatches) {
      return TooManyWatches("the connection", kMaxConnectionWatches);
    }
    if (of_peer_.Of(peer) >= kMaxPeerWatches) {
      return TooManyWatches("the peer", kMaxPeerWatches);
    }
    of_connection_.Add(watch->connection());
    of_peer_.Add(peer);
  }
  watch->place = watches_.emplace(watch->name(), watch);
  watch->Wake();
  return absl::OkStatus();
}

void HealthService::Remove(Watch* watch) {
  if (const std::string& peer = watch->peer(); peer != kUnixPeer) {
    of_connection_.Remove(watch->connection());
    of_peer_.Remove(peer);
  }
  watches_.erase(watch->place);
}

HealthService::State HealthService::StateOf(const std::string& service) const {
  const auto found = states_.find(service);
  return found == states_.end() ? State::kUnknown : found->second;
}

void HealthService::SetServing(const std::string& service, bool serving) {
  const MutexLock lock(&mu_);
  const State state = serving ? State::kServing : State::kNotServing;
  if (std::exchange(states_[service], state) == state) return;
  auto [at, end] = watches_.equal_range(service);
  for (; at != end; ++at) at->second->Wake();
}

void HealthService::Stop() {
  const MutexLock lock(&mu_);
  stopped_ = true;
  for (const auto& [service, watch] : watches_) watch->Wake();
}

}  // namespace weir
