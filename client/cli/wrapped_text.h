// Text in lines of at most 80 columns, where words allow. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>

namespace weir::client {

// Lines begin at column `indent`; the first continues one of `used` columns.
std::string WrappedText(const std::string& text, size_t indent, size_t used);

}  // namespace weir::client
