// Text that came from outside, before it is sent or shown. Pure; any thread.
#pragma once

#include <string>

namespace weir::client {

// What names on the wire must be.
bool IsUtf8(const std::string& text);

// The text with control characters escaped ("\n", "\x1b"), so that it stays one
// line.
std::string OneLine(const std::string& text);

}  // namespace weir::client
