#include "client/cli/wrapped_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace weir::client {
namespace {

constexpr size_t kColumns = 80;

}  // namespace

std::string WrappedText(const std::string& text, size_t indent, size_t used) {
  std::string out;
  size_t column = used;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '), word);
      column = indent + word.size();
    } else {
      const absl::string_view space = column > indent ? " " : "";
      absl::StrAppend(&out, space, word);
      column += space.size() + word.size();
    }
  }
  return out;
}

}  // namespace weir::client
