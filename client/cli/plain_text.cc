#include "client/cli/plain_text.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace weir::client {

// What the library's writer would stop at is not the text that comes back.
bool IsUtf8(const std::string& text) {
  using Json = nlohmann::json;
  const std::string written =
      Json(text).dump(-1, ' ', false, Json::error_handler_t::ignore);
  return Json::parse(written) == text;
}

std::string OneLine(const std::string& text) {
  std::string line;
  for (const char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const absl::string_view one(&c, 1);
    absl::StrAppend(&line, byte < 0x20 || byte == 0x7f ? absl::CHexEscape(one)
                                                       : std::string(one));
  }
  return line;
}

}  // namespace weir::client
