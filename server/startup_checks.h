// What can be said about a start before anything takes its time: folders and
// addresses that the flags name. Errors name flag, thing and cause.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace weir {

// OK for a folder that can be listed, and for "" (no models).
absl::Status CheckModelRepository(const std::string& path);

// Makes the folder if it is not there, and tries whether files can be made in
// it. OK for "".
absl::Status CheckCacheFolder(const std::string& path);

// Whether all addresses can be listened on now, together. `http` may be "".
// Nobody can connect afterwards: they are left again.
absl::Status CheckAddresses(const std::vector<std::string>& grpc,
                            const std::string& http);

}  // namespace weir
