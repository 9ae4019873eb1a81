// The value of --device: one device, or several divided by commas.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir {

// As MakeDevice names them, the default device first: "cuda:0,1" is cuda:0 and
// cuda:1, and "cuda" is cuda:0. INVALID_ARGUMENT, without the flag's name, for
// what names no device, for one that is there twice, and for "auto" beside
// another.
absl::StatusOr<std::vector<std::string>> ParseDeviceList(std::string_view list);

}  // namespace weir
