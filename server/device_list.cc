#include "server/device_list.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/absl_view.h"

namespace weir {
namespace {

constexpr std::string_view kCuda = "cuda:";
constexpr size_t kMostDigits = 4;

// The name of GPU `number`; empty for what is no number of one.
std::string CudaName(std::string_view number) {
  int ordinal = 0;
  if (number.empty() || number.size() > kMostDigits ||
      number.find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(number), &ordinal)) {
    return "";
  }
  return absl::StrCat(AbslView(kCuda), ordinal);
}

bool IsCuda(std::string_view name) {
  return name.substr(0, kCuda.size()) == kCuda;
}

// One part of a list; `before` is the device before it, or empty.
std::string NameOf(const std::string& part, std::string_view before) {
  if (part == "auto" || part == "cpu") return part;
  if (part == "cuda") return CudaName("0");
  if (IsCuda(part)) return CudaName(part.substr(kCuda.size()));
  return IsCuda(before) ? CudaName(part) : "";
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
