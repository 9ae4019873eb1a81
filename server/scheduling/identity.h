// Who calls: what bounds hold for, and what belongs to somebody.
#pragma once

#include <string_view>

namespace weir {

// Whoever has no identity of its own. No other one is called so: theirs have an
// equals sign ("CN=client").
inline constexpr std::string_view kAnonymous = "anonymous";

}  // namespace weir
