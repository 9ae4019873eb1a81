#include "client/cli/commands.h"

#include <iostream>

namespace weir::client {

ClientOptions GlobalFlags::options() const {
  ClientOptions options;
  options.address = server;
  options.timeout = absl::Seconds(timeout_seconds);
  options.tls = tls;
  return options;
}

int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  std::cerr << "weir: " << absl::StatusCodeToString(status.code()) << ": "
            << status.message() << "\n";
  return 1;
}

}  // namespace weir::client
