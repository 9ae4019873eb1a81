#include "server/services/commands/context_commands.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/command.pb.h"
#include "server/evaluation/fresh_rng.h"
#include "server/models/repository.h"
#include "server/services/commands/flush_command.h"
#include "server/services/commands/in_context.h"
#include "server/services/commands/in_space.h"
#include "server/spaces/space.h"

namespace weir {
namespace {

using v1::Command;

absl::Status CreateContext(const ServiceContext& context, Space& space,
                           const v1::ContextCreate& request,
                           v1::ContextCreated* response) {
  if (!v1::EvalMode_IsValid(request.mode())) {
    return InvalidField(
        "mode", absl::StrCat(request.mode(), " is not an evaluation mode"));
  }
  WEIR_ASSIGN_OR_RETURN(Engine* const engine,
                        context.engines.Find(request.device()));
  auto claim = space.contexts().Take(request.context());
  if (!claim.ok()) return WithField(claim.status(), "context");
  auto kept = std::make_shared<KeptContext>();
  WEIR_ASSIGN_OR_RETURN(kept->share, space.account().Take(Holding::kContexts));
  ContextOptions options;
  options.rng = request.has_rng_seed() ? RngState{.seed = request.rng_seed()}
                                       : FreshRng();
  if (request.mode() != v1::EVAL_MODE_UNSPECIFIED) {
    kept->mode = static_cast<EvalMode>(request.mode());
  }
  kept->engine = engine;
  kept->context = EvalContext::Create(engine, options);
  if (!claim->Fill(std::move(kept))) return SpaceNotFound(space.id());
  response->set_device_uuid(engine->device().info().uuid);
  response->set_rng_seed(options.rng.seed);
  return absl::OkStatus();
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
}

}  // namespace weir
