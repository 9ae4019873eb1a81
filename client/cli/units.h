// Numbers with their units, as people read them. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace weir::client {

// "784 us", "7.98 ms", "12 s": three digits.
std::string DurationText(int64_t nanoseconds);

// "1 GiB", "1.5 MiB", "64 B": four digits.
std::string ByteText(uint64_t bytes);

// "2026-11-21T14:14:01.500089Z" of nanoseconds since the Unix epoch.
std::string TimeText(int64_t nanoseconds);

}  // namespace weir::client
