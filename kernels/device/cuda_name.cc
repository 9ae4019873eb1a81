#include "kernels/device/cuda_name.h"

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "kernels/base/absl_view.h"

namespace weir {

std::optional<int> CudaOrdinal(std::string_view name) {
  if (name == "cuda") return 0;
  absl::string_view number = AbslView(name);
  int ordinal = 0;
  if (!absl::ConsumePrefix(&number, "cuda:") || number.size() > 4 ||
      // SimpleAtoi takes signs and blanks.
      number.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(number, &ordinal)) {
    return std::nullopt;
  }
  return ordinal;
}

}  // namespace weir
