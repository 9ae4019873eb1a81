#include "client/cli/name_list.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace weir::client {
namespace {

constexpr size_t kNames = 10;
constexpr size_t kBytesOfName = 100;

}  // namespace

std::string NameList(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  const size_t shown = std::min(names.size(), kNames);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    const bool cut = names[i].size() > kBytesOfName;
    absl::StrAppend(&text, i == 0 ? "'" : ", '",
                    names[i].substr(0, kBytesOfName), cut ? "...'" : "'");
  }
  if (names.size() > shown) {
    absl::StrAppend(&text, " and ", names.size() - shown, " more");
  }
  return text;
}

}  // namespace weir::client
