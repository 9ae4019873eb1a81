#include "server/models/name_list.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"

namespace weir {
namespace {

constexpr size_t kNamed = 8;

}  // namespace

void NameList::Add(std::string_view name) {
  if (++count_ > kNamed) return;
  absl::StrAppend(&text_, count_ == 1 ? "" : ", ", QuoteStart(name));
}

std::string NameList::Text() const {
  if (count_ == 0) return "none";
  if (count_ <= kNamed) return text_;
  return absl::StrCat(text_, " and ", count_ - kNamed, " more");
}

}  // namespace weir
