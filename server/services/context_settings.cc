#include "server/services/context_settings.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

constexpr uint32_t kStateVersion = 1;

absl::Status ReadMode(v1::EvalMode mode, ContextSettings* settings) {
  if (!v1::EvalMode_IsValid(mode)) {
    return InvalidField("mode",
                        absl::StrCat(mode, " is not an evaluation mode"));
  }
  if (mode != v1::EVAL_MODE_UNSPECIFIED) {
    settings->mode = static_cast<EvalMode>(mode);
  }
  return absl::OkStatus();
}

absl::Status ReadThreads(Engine& engine, uint32_t threads,
                         ContextSettings* settings) {
  CpuTeam* const team = engine.device().cpu_team();
  if (threads != 0 && team == nullptr) {
    return WithField(
        WithReason(absl::FailedPreconditionError(absl::StrCat(
                       "the context is on ", DeviceName(engine.device().info()),
                       ", whose operators have no CPU threads; leave "
                       "cpu_threads unset, or make the context on a CPU")),
                   "WRONG_DEVICE"),
        "cpu_threads");
  }
  if (team != nullptr && threads > static_cast<uint32_t>(team->size())) {
    return InvalidField(
        "cpu_threads",
        absl::StrCat(DeviceName(engine.device().info()), " has ", team->size(),
                     " threads (--cpu-threads), and not ", threads));
  }
  settings->cpu_threads = static_cast<int>(threads);
  return absl::OkStatus();
}

absl::Status ReadConflict(v1::ContextConflict conflict,
                          ContextSettings* settings) {
  if (!v1::ContextConflict_IsValid(conflict)) {
    return InvalidField(
        "on_conflict",
        absl::StrCat(conflict,
                     " is not a way to meet a context that is in use"));
  }
  if (conflict != v1::CONTEXT_CONFLICT_UNSPECIFIED) {
    settings->queue = conflict == v1::CONTEXT_CONFLICT_QUEUE;
  }
  return absl::OkStatus();
}

absl::Status ReadTtl(int64_t ttl_ns, ContextSettings* settings) {
  if (ttl_ns < 0) {
    return InvalidField("ttl_ns", absl::StrCat(ttl_ns, " is negative"));
  }
  settings->ttl = ttl_ns;
  return absl::OkStatus();
}

}  // namespace

template <typename Request>
absl::Status ReadSettings(Engine& engine, const Request& request,
                          ContextSettings* settings) {
  WEIR_RETURN_IF_ERROR(ReadMode(request.mode(), settings));
  if (request.has_cpu_threads()) {
    WEIR_RETURN_IF_ERROR(ReadThreads(engine, request.cpu_threads(), settings));
  }
  WEIR_RETURN_IF_ERROR(ReadConflict(request.on_conflict(), settings));
  return request.has_ttl_ns() ? ReadTtl(request.ttl_ns(), settings)
                              : absl::OkStatus();
}
template absl::Status ReadSettings(Engine&, const v1::ContextCreate&,
                                   ContextSettings*);
template absl::Status ReadSettings(Engine&, const v1::ContextUpdate&,
                                   ContextSettings*);

absl::Status ReadSettings(Engine& engine, const v1::ContextSettings& from,
                          ContextSettings* settings) {
  WEIR_RETURN_IF_ERROR(ReadMode(from.mode(), settings));
  WEIR_RETURN_IF_ERROR(ReadThreads(engine, from.cpu_threads(), settings));
  WEIR_RETURN_IF_ERROR(ReadConflict(from.on_conflict(), settings));
  return ReadTtl(from.ttl_ns(), settings);
}

std::string ExportState(const v1::ContextSettings& settings) {
  v1::ContextState state;
  state.set_version(kStateVersion);
  *state.mutable_settings() = settings;
  return state.SerializeAsString();
}

absl::StatusOr<v1::ContextSettings> ReadState(const std::string& bytes) {
  v1::ContextState state;
  if (!state.ParseFromString(bytes) || state.version() == 0) {
    return InvalidField("state",
                        "these bytes are no state that context_export gave");
  }
  if (state.version() != kStateVersion) {
    return WithField(
        WithReason(absl::FailedPreconditionError(absl::StrCat(
                       "the state has version ", state.version(),
                       ", and this server reads version ", kStateVersion,
                       "; create the context, and set what it had")),
                   "CONTEXT_STATE_VERSION",
                   {{"version", absl::StrCat(state.version())},
                    {"expected", absl::StrCat(kStateVersion)}}),
        "state");
  }
  return state.settings();
}

v1::ContextSettings SettingsToProto(const ContextSettings& settings,
                                    const RngState& rng) {
  v1::ContextSettings proto;
  proto.set_mode(static_cast<v1::EvalMode>(settings.mode));
  proto.set_rng_seed(rng.seed);
  proto.set_rng_position(rng.position);
  proto.set_cpu_threads(static_cast<uint32_t>(settings.cpu_threads));
  proto.set_on_conflict(settings.queue ? v1::CONTEXT_CONFLICT_QUEUE
                                       : v1::CONTEXT_CONFLICT_REFUSE);
  proto.set_ttl_ns(settings.ttl);
  return proto;
}

}  // namespace weir
