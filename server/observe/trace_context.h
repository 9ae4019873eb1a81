// The W3C Trace Context that a call may carry in its header `traceparent`.
#pragma once

#include <optional>
#include <string_view>

namespace weir {

struct TraceContext {
  std::string_view trace_id;   // 32 lower-case hexadecimal digits, not all 0
  std::string_view parent_id;  // 16, not all 0
  bool sampled = false;
};

// Strict: nothing if `header` breaks any rule of the standard. A version above
// 00 may have more after its flags. The views point into `header`.
std::optional<TraceContext> ParseTraceparent(std::string_view header);

}  // namespace weir
