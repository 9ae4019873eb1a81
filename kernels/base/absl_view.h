// The packaged Abseil was built with a string_view of its own: what is handed
// to its functions is converted here.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace weir {

inline absl::string_view AbslView(std::string_view s) {
  return {s.data(), s.size()};
}

}  // namespace weir
