// How many CPUs this process may use, from its affinity mask and the cgroup's
// quota.
#pragma once

#include <string>

namespace weir {

// At least 1. `root` stands for "/" in tests.
int CpuQuota(const std::string& root = "");

}  // namespace weir
