#include "server/services/page.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/fingerprint.h"
#include "server/rpc/wire/explain_request.h"

namespace weir {
Page::Page(int32_t entries, std::string_view list)
    : list_(Fingerprint(list)), entries_left_(entries) {}

absl::StatusOr<Page> Page::Read(int32_t page_size, std::string_view page_token,
                                std::string_view list) {
  if (page_size < 0) {
    return InvalidField(
        "page_size",
        absl::StrCat(page_size, " is negative; 0 means ", kMaxPageEntries));
  }
  Page page(
      page_size == 0 ? kMaxPageEntries : std::min(page_size, kMaxPageEntries),
      list);
  if (page_token.empty()) return page;
  std::string bytes;
  uint64_t of = 0;
  if (page_token.size() > kMaxPageTokenBytes ||
      !absl::WebSafeBase64Unescape(AbslView(page_token), &bytes) ||
      bytes.size() < sizeof(of)) {
    return InvalidField("page_token",
                        "this is no token of this server; use next_page_token "
                        "as it was received");
  }
  std::memcpy(&of, bytes.data(), sizeof(of));
  if (of != page.list_) {
    return InvalidField("page_token",
                        "this token belongs to another list or filter; begin "
                        "again without one");
  }
  page.continues_ = true;
  page.after_ = bytes.substr(sizeof(of));
  return page;
}

bool Page::Take(std::string_view key, size_t bytes) {
  // The first entry is taken whatever its size: else nobody could pass it.
  if (entries_left_ == 0 || (!empty_ && bytes > bytes_left_)) {
    EndHere();
    return false;
  }
  --entries_left_;
  bytes_left_ -= std::min(bytes, bytes_left_);
  empty_ = false;
  last_ = std::string(key);
  return true;
}

bool Page::EndHere() {
  if (empty_) return false;
  std::string token(reinterpret_cast<const char*>(&list_), sizeof(list_));
  token += last_;
  next_token_ = absl::WebSafeBase64Escape(token);
  return true;
}

}  // namespace weir
