#include "server/device_list.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/absl_view.h"
#include "kernels/device/cuda_name.h"

namespace weir {
namespace {

// One part of a list; `before` is the device before it, or empty. Empty for
// what names none.
std::string NameOf(const std::string& part, std::string_view before) {
  if (part == "auto" || part == "cpu") return part;
  std::optional<int> ordinal = CudaOrdinal(part);
  // A number alone stands behind a GPU.
  if (!ordinal.has_value() && CudaOrdinal(before).has_value()) {
    ordinal = CudaOrdinal("cuda:" + part);
  }
  return ordinal.has_value() ? absl::StrCat("cuda:", *ordinal) : "";
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseDeviceList(
    std::string_view list) {
  std::vector<std::string> names;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(AbslView(list), ','))) {
    std::string name = NameOf(part, names.empty() ? "" : names.back());
    if (name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part,
                       "\" is not auto, cpu, cuda or cuda:N; a number alone "
                       "stands behind cuda:N (cuda:0,1)"));
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", AbslView(list), "\" has ", name, " twice"));
    }
    names.push_back(std::move(name));
  }
  if (names.size() > 1 &&
      std::find(names.begin(), names.end(), "auto") != names.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", AbslView(list),
                     "\": auto is one device; name them all, or give auto "
                     "alone"));
  }
  return names;
}

}  // namespace weir
