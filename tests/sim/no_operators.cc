// The registry of the simulation has one operator, which world.cc makes. Those
// of ops.def, which MakeOpRegistry names, are empty here, but for those whose
// file is needed for something else.
#include "kernels/ops/registry.h"

namespace weir {

#define OP(domain, Name, family, ...)                            \
  __attribute__((weak))                                          \
  absl::Status Register_##domain##_##Name(OpRegistry& registry); \
  absl::Status Register_##domain##_##Name(OpRegistry&) {         \
    return absl::OkStatus();                                     \
  }
#include "kernels/ops/ops.def"
#undef OP

}  // namespace weir
