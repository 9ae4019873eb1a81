// Certificates, keys and tokens: files of the operator's that are read whole.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace weir {

// What the regular file `path` holds, `most_bytes` or less; opening anything
// else does not block. FAILED_PRECONDITION, with the cause alone for its
// message, for the caller to say whose file it is.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path,
                                          size_t most_bytes);

}  // namespace weir
