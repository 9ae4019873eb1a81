// Variables of the environment that look like settings of weir-server and are
// none: a misspelt one must not be passed over in silence. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace weir {

// Names in `environment` ("NAME=value", ended by null) that begin with WEIR_
// and are neither in `known` nor anybody else's: what Kubernetes injects for a
// Service named weir, what the client, the tests and the build read. Sorted.
std::vector<std::string> UnknownVariables(const char* const* environment,
                                          const std::set<std::string>& known);

}  // namespace weir
