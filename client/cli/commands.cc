#include "client/cli/commands.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/status_details.h"

namespace weir::client {

ClientOptions GlobalFlags::options() const {
  ClientOptions options;
  options.address = server;
  options.timeout = absl::Seconds(timeout_seconds);
  options.tls = tls;
  return options;
}

CLI::Validator Within(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        double number = 0;
        if (CLI::detail::lexical_cast(text, number) && number >= least &&
            number <= most) {
          return "";
        }
        return absl::StrCat("Value ", text, " not in range ", least, " to ",
                            most);
      },
      absl::StrCat("FLOAT in [", least, " - ", most, "]"));
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
