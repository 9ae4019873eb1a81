// What the spaces of a server may hold, as its flags say. Pure; any thread.
#pragma once

#include <cstdint>

#include "server/options.h"
#include "server/spaces/spaces.h"

namespace weir {

// Of what has no flag, an identity but `anonymous` may hold so many times what
// one space may, and all spaces together so many times.
inline constexpr uint64_t kIdentityTimes = 4;
inline constexpr uint64_t kServerTimes = 16;
// An identity may have one of so many spaces.
inline constexpr uint64_t kIdentityPart = 4;

// `tensor_bytes` of all devices.
SpacesOptions MakeSpacesOptions(const ServerOptions& options,
                                uint64_t tensor_bytes,
                                SpaceToken::Origin origin);

}  // namespace weir
