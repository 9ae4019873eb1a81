#include "server/observe/trace_context.h"

#include <algorithm>

namespace weir {
namespace {

constexpr size_t kVersion00Size = 55;

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return HexValue(c) >= 0; });
}

bool IsId(std::string_view text) {
  return IsHex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

// version "-" trace-id "-" parent-id "-" flags
std::optional<TraceContext> ParseTraceparent(std::string_view header) {
  if (header.size() < kVersion00Size || header[2] != '-' || header[35] != '-' ||
      header[52] != '-') {
    return std::nullopt;
  }
  const std::string_view version = header.substr(0, 2);
  const std::string_view flags = header.substr(53, 2);
  if (!IsHex(version) || version == "ff" || !IsHex(flags)) return std::nullopt;
  if (header.size() > kVersion00Size &&
      (version == "00" || header[kVersion00Size] != '-')) {
    return std::nullopt;
  }
  TraceContext trace{header.substr(3, 32), header.substr(36, 16),
                     (HexValue(flags[1]) & 1) != 0};
  if (!IsId(trace.trace_id) || !IsId(trace.parent_id)) return std::nullopt;
  return trace;
}

}  // namespace weir
