// The names of GPUs: "cuda:N", and "cuda" for the first. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/base/export.h"

namespace weir {

// N, of at most four digits; nothing if `name` names no GPU.
WEIR_EXPORT std::optional<int> CudaOrdinal(std::string_view name);

}  // namespace weir
