// Lines about compiled kernels that cannot be written to their folder: the
// server serves on, and whoever starts it next waits for them again. For one
// thread, which writes now and then.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "kernels/device/device.h"
#include "server/observe/logger.h"

namespace weir {

class KernelCacheLines {
 public:
  explicit KernelCacheLines(Logger* logger) : logger_(logger) {}

  // Says what failed on that device since it last said something of it; once it
  // has, only after kQuietCalls more calls.
  static constexpr int kQuietCalls = 600;
  void Write(const std::string& device, const KernelCacheStats& stats);

 private:
  struct Said {
    uint64_t failures = 0;
    int quiet = 0;  // calls for which nothing is said
  };

  Logger* const logger_;
  std::map<std::string, Said> said_;  // by device
};

}  // namespace weir
