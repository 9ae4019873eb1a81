// Names for a message about one that there is not. Pure; any thread.
#pragma once

#include <string>
#include <vector>

namespace weir::client {

// "'x', 'y' and 40 more": the first few, long ones cut short; "none" of none.
std::string NameList(const std::vector<std::string>& names);

}  // namespace weir::client
