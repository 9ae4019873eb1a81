// The main function of Google benchmarks whose figures are judged.
#pragma once

#include <string>
#include <vector>

namespace weir::bench {

struct Limit {
  std::string name;  // as it is printed, "Work/threads:1"
  double most_cpu_ns = 0;
  double least_per_second = 0;  // items
};

// Runs the registered benchmarks, prints them and each limit. 1 if a limit does
// not hold, or nothing of its name ran and no filter was given.
int RunJudged(int argc, char** argv, const std::vector<Limit>& limits);

}  // namespace weir::bench
