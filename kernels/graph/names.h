// Names in a graph: of nodes, values, operators, attributes. They end up in
// errors and in what is told about a model, so importers check them before they
// repeat one. Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir {

inline constexpr size_t kMaxNameBytes = 1024;

inline absl::Status CheckNameLength(std::string_view name) {
  if (name.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a name of ", name.size(), " bytes is longer than ", kMaxNameBytes));
}

}  // namespace weir
