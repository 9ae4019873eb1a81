// What the kernel tells of this process, under the names that Prometheus'
// client libraries give it: CPU time, memory, descriptors, threads, start. Read
// when /metrics is.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/observe/metrics.h"

namespace weir {

// What can be read below `proc`: of a process whose /proc is not there only its
// limits are.
std::vector<std::pair<Metric, double>> ReadProcess(
    const std::string& proc = "/proc");

void AddProcessMetrics(Metrics* metrics);

}  // namespace weir
