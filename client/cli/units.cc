#include "client/cli/units.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace weir::client {

std::string DurationText(int64_t nanoseconds) {
  static constexpr const char* kUnits[] = {"ns", "us", "ms", "s"};
  auto value = static_cast<double>(nanoseconds);
  size_t unit = 0;
  // 999.6 would be shown as 1000.
  while (unit + 1 < std::size(kUnits) && std::fabs(value) >= 999.5) {
    value /= 1000;
    ++unit;
  }
  return std::fabs(value) >= 999.5
             ? absl::StrFormat("%.0f %s", value, kUnits[unit])
             : absl::StrFormat("%.3g %s", value, kUnits[unit]);
}

std::string ByteText(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && value >= 1024) {
    value /= 1024;
    ++unit;
  }
  return value >= 9999.5 ? absl::StrFormat("%.0f %s", value, kUnits[unit])
                         : absl::StrFormat("%.4g %s", value, kUnits[unit]);
}

std::string TimeText(int64_t nanoseconds) {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E6SZ",
                          absl::FromUnixNanos(nanoseconds),
                          absl::UTCTimeZone());
}

}  // namespace weir::client
