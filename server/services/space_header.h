// The space that a call names: by its token, in the metadata.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "server/rpc/server_call.h"
#include "server/services/service_context.h"
#include "server/spaces/space.h"

namespace weir {

inline constexpr std::string_view kSpaceHeader = "weir-space-bin";

// The space whose token the call carries, for the identity that calls; no use
// if it carries none. Errors as Spaces::Find, and UNIMPLEMENTED where the
// server offers none. On the call's I/O thread.
absl::StatusOr<SpaceUse> FindSpace(const ServiceContext& context,
                                   ServerCall& call);
// The same where there must be one: INVALID_ARGUMENT if the call carries none.
absl::StatusOr<SpaceUse> RequireSpace(const ServiceContext& context,
                                      ServerCall& call);

// INVALID_ARGUMENT for more bytes than a command without elements can be in
// need of: they are not worth to be parsed.
absl::Status CheckSmallCommand(const ServerCall& call);

}  // namespace weir
