#include "server/services/commands/context_commands.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/evaluation/fresh_rng.h"
#include "server/services/commands/flush_command.h"
#include "server/services/commands/in_context.h"
#include "server/services/commands/in_space.h"
#include "server/services/context_settings.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

// The random state that a message asks for, of a context that has `now`, or is
// new; empty if it asks for none.
template <typename Request>
absl::StatusOr<std::optional<RngState>> ReadRng(
    Space& space, const Request& request, const std::optional<RngState>& now) {
  std::optional<RngState> rng;
  if (request.has_rng_seed() && request.rng_of() != 0) {
    return InvalidField("rng_of",
                        "rng_seed and rng_of say both where the random "
                        "numbers come from; leave one of them unset");
  }
  if (request.rng_of() != 0) {
    const auto other = space.FindContext(request.rng_of(), NowNanos());
    if (!other.ok()) return WithField(other.status(), "rng_of");
    rng = (*other)->context()->rng();
  } else if (request.has_rng_seed()) {
    rng = RngState{.seed = request.rng_seed()};
  }
  if (request.has_rng_position()) {
    if (!rng.has_value()) rng = now;
    if (!rng.has_value()) {
      return InvalidField("rng_position",
                          "a position is one of a seed's: set rng_seed or "
                          "rng_of, too");
    }
    rng->position = request.rng_position();
  }
  return rng;
}

// Under this number, which nobody has.
absl::Status MakeContext(Space& space, uint64_t number, Engine* engine,
                         const ContextSettings& settings, const RngState& rng) {
  auto claim = space.TakeContext(number);
  if (!claim.ok()) return WithField(claim.status(), "context");
  WEIR_ASSIGN_OR_RETURN(Account::Share share,
                        space.account().Take(Holding::kContexts));
  ContextOptions options;
  options.rng = rng;
  auto kept = std::make_shared<KeptContext>(
      engine, EvalContext::Create(engine, options), settings, std::move(share));
  return claim->Fill(std::move(kept)) ? absl::OkStatus()
                                      : SpaceNotFound(space.id());
}

absl::Status CreateContext(const ServiceContext& context, Space& space,
                           const v1::ContextCreate& request,
                           v1::ContextCreated* response) {
  WEIR_ASSIGN_OR_RETURN(Engine* const engine,
                        context.engines.Find(request.device()));
  ContextSettings settings;
  WEIR_RETURN_IF_ERROR(ReadSettings(*engine, request, &settings));
  WEIR_ASSIGN_OR_RETURN(const std::optional<RngState> wanted,
                        ReadRng(space, request, std::nullopt));
  const RngState rng = wanted.has_value() ? *wanted : FreshRng();
  WEIR_RETURN_IF_ERROR(
      MakeContext(space, request.context(), engine, settings, rng));
  response->set_device_uuid(engine->device().info().uuid);
  response->set_rng_seed(rng.seed);
  *response->mutable_settings() = SettingsToProto(settings, rng);
  return absl::OkStatus();
}

absl::Status UpdateContext(const InsideContext& inside,
                           const v1::ContextUpdate& request,
                           v1::ContextUpdated* response) {
  ContextSettings settings = inside.kept.settings();
  WEIR_RETURN_IF_ERROR(ReadSettings(inside.kept.engine(), request, &settings));
  EvalContext& context = *inside.kept.context();
  WEIR_ASSIGN_OR_RETURN(const std::optional<RngState> rng,
                        ReadRng(inside.space, request, context.rng()));
  if (rng.has_value()) inside.activation.set_rng(*rng);
  inside.kept.set_settings(settings);
  *response->mutable_settings() = SettingsToProto(settings, context.rng());
  return absl::OkStatus();
}

absl::Status ExportContext(const InsideContext& inside,
                           const v1::ContextExport&,
                           v1::ContextExported* response) {
  response->set_state(ExportState(
      SettingsToProto(inside.kept.settings(), inside.kept.context()->rng())));
  return absl::OkStatus();
}

// What `request` brings, for a context on `engine`.
struct ImportedState {
  ContextSettings settings;
  RngState rng;
};
absl::StatusOr<ImportedState> ReadImport(Engine& engine,
                                         const v1::ContextImport& request) {
  WEIR_ASSIGN_OR_RETURN(const v1::ContextSettings from,
                        ReadState(request.state()));
  ImportedState state;
  const absl::Status fits = ReadSettings(engine, from, &state.settings);
  if (!fits.ok()) return WithField(fits, "state");
  state.rng = {.seed = from.rng_seed(), .position = from.rng_position()};
  return state;
}

void FillImported(Engine& engine, const ImportedState& state, bool created,
                  v1::ContextImported* response) {
  response->set_device_uuid(engine.device().info().uuid);
  response->set_created(created);
  *response->mutable_settings() = SettingsToProto(state.settings, state.rng);
}

absl::Status MakeImported(const ServiceContext& context, Space& space,
                          const v1::ContextImport& request,
                          v1::ContextImported* response) {
  WEIR_ASSIGN_OR_RETURN(Engine* const engine,
                        context.engines.Find(request.device()));
  WEIR_ASSIGN_OR_RETURN(const ImportedState state,
                        ReadImport(*engine, request));
  WEIR_RETURN_IF_ERROR(
      MakeContext(space, request.context(), engine, state.settings, state.rng));
  FillImported(*engine, state, /*created=*/true, response);
  return absl::OkStatus();
}

absl::Status ChangeAsImported(const InsideContext& inside,
                              const v1::ContextImport& request,
                              v1::ContextImported* response) {
  Engine& engine = inside.kept.engine();
  const DeviceInfo& device = engine.device().info();
  if (!request.device().empty() && !IsNamed(device, request.device())) {
    return WithField(
        WithReason(absl::FailedPreconditionError(absl::StrCat(
                       "context ", request.context(), " is on ",
                       DeviceName(device), ", and not on ", request.device(),
                       "; leave device unset, or close the context first")),
                   "WRONG_DEVICE"),
        "device");
  }
  WEIR_ASSIGN_OR_RETURN(const ImportedState state, ReadImport(engine, request));
  inside.kept.set_settings(state.settings);
  inside.activation.set_rng(state.rng);
  FillImported(engine, state, /*created=*/false, response);
  return absl::OkStatus();
}

MethodHandler ImportHandler(const ServiceContext* context) {
  auto make = InSpace<v1::ContextImport, v1::ContextImported>(
      context, [context](Space& space, const v1::ContextImport& request,
                         v1::ContextImported* response) {
        return MakeImported(*context, space, request, response);
      });
  auto change = InContext<v1::ContextImport, v1::ContextImported>(
      context, ChangeAsImported);
  return [context, make = std::move(make),
          change = std::move(change)](ServerCall& call) {
    // What is wrong with either they tell themselves.
    v1::ContextImport request;
    const bool known = CheckSmallCommand(call).ok() &&
                       ParseMessage(call.request(), &request).ok();
    auto space = RequireSpace(*context, call);
    const bool change_it = known && space.ok() &&
                           (*space)->contexts().Find(request.context()).ok();
    (change_it ? change : make)(call);
  };
}

absl::Status CloseContext(const InsideContext& inside,
                          const v1::ContextClose& request,
                          v1::ContextClosed* response) {
  inside.space.contexts().RemoveIf(request.context(), &inside.kept);
  FillFlushed(inside.activation.Flush(), response->mutable_flushed());
  return absl::OkStatus();
}

}  // namespace

void AddContextCommands(ServiceContext* context, CommandHandlers* handlers) {
  handlers->Add(
      Command::kContextCreate,
      InSpace<v1::ContextCreate, v1::ContextCreated>(
          context, [context](Space& space, const v1::ContextCreate& request,
                             v1::ContextCreated* response) {
            return CreateContext(*context, space, request, response);
          }));
  handlers->Add(
      Command::kContextClose,
      InContext<v1::ContextClose, v1::ContextClosed>(context, CloseContext));
  handlers->Add(
      Command::kContextUpdate,
      InContext<v1::ContextUpdate, v1::ContextUpdated>(context, UpdateContext));
  handlers->Add(Command::kContextExport,
                InContext<v1::ContextExport, v1::ContextExported>(
                    context, ExportContext));
  handlers->Add(Command::kContextImport, ImportHandler(context));
}

}  // namespace weir
