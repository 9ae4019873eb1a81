#include "server/services/space_header.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/clock.h"
#include "server/spaces/spaces.h"

namespace weir {

absl::StatusOr<SpaceUse> FindSpace(const ServiceContext& context,
                                   ServerCall& call) {
  const std::optional<std::string_view> token = call.Header(kSpaceHeader);
  if (!token.has_value()) return SpaceUse();
  if (context.spaces == nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "this server offers no spaces; call without ", AbslView(kSpaceHeader)));
  }
  return context.spaces->Find(*token, call.identity(), NowNanos());
}

absl::StatusOr<SpaceUse> RequireSpace(const ServiceContext& context,
                                      ServerCall& call) {
  absl::StatusOr<SpaceUse> space = FindSpace(context, call);
  if (space.ok() && !*space) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the call names no space: send the token that Open gave in the "
        "metadata ",
        AbslView(kSpaceHeader)));
  }
  return space;
}

absl::Status CheckSmallCommand(const ServerCall& call) {
  constexpr size_t kMaxBytes = size_t{64} << 10;
  if (call.request().size() <= kMaxBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the command has ", call.request().size(),
                   " bytes; one of its kind has at most ", kMaxBytes));
}

}  // namespace weir
