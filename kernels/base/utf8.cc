#include "kernels/base/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

// Bytes of the character at the front of `text`; 0 if there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer forms than needed, surrogates, and beyond U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return bytes;
}

constexpr size_t kQuotedBytes = 64;

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string EscapeNonUtf8(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) {
      absl::StrAppend(
          &escaped, "\\x",
          absl::Hex(static_cast<uint8_t>(text[0]), absl::kZeroPad2));
      text.remove_prefix(1);
    } else {
      escaped.append(text.substr(0, bytes));
      text.remove_prefix(bytes);
    }
  }
  return escaped;
}

std::string_view CutText(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  // A character across the cut begins at most three bytes before it.
  for (size_t before = 1; before <= std::min(bytes, size_t{3}); ++before) {
    if (CharacterBytes(text.substr(bytes - before)) > before) {
      return text.substr(0, bytes - before);
    }
  }
  return text.substr(0, bytes);
}

std::string QuoteStart(std::string_view text) {
  if (text.size() <= kQuotedBytes) {
    return absl::StrCat("\"", EscapeNonUtf8(text), "\"");
  }
  return absl::StrCat("\"", EscapeNonUtf8(CutText(text, kQuotedBytes)),
                      "...\"");
}

}  // namespace weir
