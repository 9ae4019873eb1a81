#include "server/services/admin.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/admin.pb.h"
#include "server/rpc/typed_method.h"
#include "server/services/synchronize_call.h"

namespace weir {
namespace {

constexpr char kService[] = "weir.v1.Admin";
// "unix:PATH" or "unix:"; gRPC has it from the socket, not from the caller.
bool CameByUnixSocket(const ServerCall& call) {
  return absl::StartsWith(call.Connection(), "unix:");
}

std::optional<LogLevel> FromProto(v1::LogLevel level) {
  switch (level) {
    case v1::LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case v1::LOG_LEVEL_INFO:
      return LogLevel::kInfo;
    case v1::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return std::nullopt;
  }
}

v1::LogLevel ToProto(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return v1::LOG_LEVEL_DEBUG;
    case LogLevel::kInfo:
      return v1::LOG_LEVEL_INFO;
    case LogLevel::kWarning:
      return v1::LOG_LEVEL_WARNING;
    case LogLevel::kError:
      return v1::LOG_LEVEL_ERROR;
  }
  return v1::LOG_LEVEL_UNSPECIFIED;
}

void FillPool(const StreamPool& pool, v1::StreamPool* message) {
  const StreamPoolOptions& options = pool.options();
  const StreamPoolStats stats = pool.stats();
  const auto count = [](size_t number) {
    return static_cast<uint32_t>(number);
  };
  message->set_name(options.name);
  message->set_device_uuid(pool.device().info().uuid);
  message->set_priority(options.priority);
  message->set_idle(count(stats.idle));
  message->set_leased(count(stats.leased));
  message->set_draining(count(stats.draining));
  message->set_retired(count(stats.retired));
  message->set_max(count(stats.max));
  message->set_least_max(count(pool.least_max()));
  message->set_most_max(count(pool.most_max()));
  message->set_waiting(stats.waiting);
  message->set_created_total(stats.created_total);
  message->set_destroyed_total(stats.destroyed_total);
  message->set_leases_total(stats.leases_total);
  message->set_waited_total(stats.waited_total);
  message->set_refused_total(stats.refused_total);
  message->set_expired_total(stats.expired_total);
  message->set_arena_bytes(stats.arena_bytes);
}

}  // namespace

absl::Status AdminService::Authorize(const ServerCall& call) const {
  if (CameByUnixSocket(call)) return absl::OkStatus();
  if (token_ == nullptr) {
    return WithReason(
        absl::PermissionDeniedError(
            "this server takes Admin calls over unix sockets only: call it on "
            "one (unix:PATH among the addresses of --grpc), or start it with "
            "--admin-token-file and send the token"),
        "ADMIN_OVER_TCP");
  }
  constexpr std::string_view kScheme = "Bearer ";
  const std::string_view header = call.Header("authorization").value_or("");
  const bool given = header.size() > kScheme.size() &&
                     header.substr(0, kScheme.size()) == kScheme;
  if (given && token_->Matches(header.substr(kScheme.size()))) {
    return absl::OkStatus();
  }
  return WithReason(
      absl::UnauthenticatedError(absl::StrCat(
          given ? "the token is another than the server's: " : "",
          "over TCP this call needs the header 'authorization: Bearer TOKEN' "
          "with the token of the server's --admin-token-file (weir: "
          "--token-file)")),
      "ADMIN_TOKEN");
}

void AdminService::Register(MethodTable* table) {
  AddUnary<v1::DrainRequest, v1::DrainResponse>(
      table, kService, "Drain",
      [this](ServerCall& call, const v1::DrainRequest&,
             v1::DrainResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        const ServerOptions& options = context_->options;
        response->set_started(drain_());
        response->set_delay_ns(absl::ToInt64Nanoseconds(options.drain_delay));
        response->set_limit_ns(absl::ToInt64Nanoseconds(options.drain_delay +
                                                        options.drain_timeout));
        response->set_requests_in_flight(
            static_cast<uint64_t>(context_->admission.requests()));
        return absl::OkStatus();
      });
  AddUnary<v1::SetLogLevelRequest, v1::SetLogLevelResponse>(
      table, kService, "SetLogLevel",
      [this](ServerCall& call, const v1::SetLogLevelRequest& request,
             v1::SetLogLevelResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        const std::optional<LogLevel> level = FromProto(request.level());
        if (!level.has_value()) {
          return InvalidField(
              "level",
              absl::StrCat(request.level(),
                           " is not a log level; there are LOG_LEVEL_DEBUG, "
                           "LOG_LEVEL_INFO, LOG_LEVEL_WARNING and "
                           "LOG_LEVEL_ERROR"));
        }
        response->set_previous(ToProto(logger_->level()));
        logger_->set_level(*level);
        return absl::OkStatus();
      });
  AddPoolCalls(table);
  AddDeviceCalls(table);
}

void AdminService::AddPoolCalls(MethodTable* table) {
  AddUnary<v1::GetPoolsRequest, v1::GetPoolsResponse>(
      table, kService, "GetPools",
      [this](ServerCall& call, const v1::GetPoolsRequest&,
             v1::GetPoolsResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        for (Engine* const engine : context_->engines.all()) {
          for (const StreamPool* const pool : engine->pools().all()) {
            FillPool(*pool, response->add_pools());
          }
        }
        return absl::OkStatus();
      });
  AddUnary<v1::ConfigurePoolRequest, v1::ConfigurePoolResponse>(
      table, kService, "ConfigurePool",
      [this](ServerCall& call, const v1::ConfigurePoolRequest& request,
             v1::ConfigurePoolResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        WEIR_ASSIGN_OR_RETURN(const EnginePool found, FindPool(request.pool()));
        const size_t before = found.pool->stats().max;
        const absl::Status set =
            found.engine->pools().SetMax(*found.pool, request.max());
        if (!set.ok()) return WithField(set, "max");
        response->set_previous_max(static_cast<uint32_t>(before));
        FillPool(*found.pool, response->mutable_pool());
        return absl::OkStatus();
      });
  AddUnary<v1::TrimPoolRequest, v1::TrimPoolResponse>(
      table, kService, "TrimPool",
      [this](ServerCall& call, const v1::TrimPoolRequest& request,
             v1::TrimPoolResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        WEIR_ASSIGN_OR_RETURN(const EnginePool found, FindPool(request.pool()));
        response->set_destroyed(
            static_cast<uint32_t>(found.pool->Trim(request.keep())));
        FillPool(*found.pool, response->mutable_pool());
        return absl::OkStatus();
      });
}

void AdminService::AddDeviceCalls(MethodTable* table) {
  AddUnary<v1::SetDefaultsRequest, v1::SetDefaultsResponse>(
      table, kService, "SetDefaults",
      [this](ServerCall& call, const v1::SetDefaultsRequest& request,
             v1::SetDefaultsResponse* response) -> absl::Status {
        WEIR_RETURN_IF_ERROR(Authorize(call));
        WEIR_ASSIGN_OR_RETURN(Engine* const engine,
                              context_->engines.Find(request.device()));
        StreamPools& pools = engine->pools();
        const auto set = request.has_stream_priority()
                             ? pools.SetServerDefault(request.stream_priority())
                             : pools.ServerDefault();
        if (!set.ok()) return WithField(set.status(), "stream_priority");
        response->set_version(set->version);
        response->set_stream_priority(set->pool->options().priority);
        response->set_pool(set->pool->options().name);
        return absl::OkStatus();
      });
  table->Add(kService, "Synchronize", Traffic::kRare, [this](ServerCall& call) {
    const absl::Status authorized = Authorize(call);
    if (!authorized.ok()) return call.Fail(authorized);
    HandleSynchronize(context_, call);
  });
}

absl::StatusOr<AdminService::EnginePool> AdminService::FindPool(
    std::string_view name) const {
  absl::Status none;
  for (Engine* const engine : context_->engines.all()) {
    const auto pool = engine->pools().Find(name);
    if (pool.ok()) return EnginePool{engine, *pool};
    // Of several devices, those that the default one has.
    if (none.ok()) none = pool.status();
  }
  return WithField(none, "pool");
}

}  // namespace weir
