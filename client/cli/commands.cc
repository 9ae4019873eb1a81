#include "client/cli/commands.h"

#include <iostream>

#include "client/cpp/status_details.h"

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
  std::cerr << "weir: " << ErrorText(status) << "\n";
  return 1;
}

int ReportUsage(std::string_view what) {
  std::cerr << "weir: " << what << "; see weir --help\n";
  return 2;
}

int ReportArgument(const absl::Status& status) {
  return absl::IsInvalidArgument(status)
             ? ReportUsage(std::string(status.message()))
             : Report(status);
}

}  // namespace weir::client
