#include "tests/bench/judged.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <map>
#include <string>

namespace weir::bench {
namespace {

class Recorder final : public benchmark::ConsoleReporter {
 public:
  void ReportRuns(const std::vector<Run>& runs) override {
    ConsoleReporter::ReportRuns(runs);
    for (const Run& run : runs) {
      if (run.error_occurred) continue;
      const double scale = benchmark::GetTimeUnitMultiplier(run.time_unit);
      cpu_ns[run.benchmark_name()] = run.GetAdjustedCPUTime() / scale * 1e9;
      const auto items = run.counters.find("items_per_second");
      if (items != run.counters.end()) {
        per_second[run.benchmark_name()] = items->second;
      }
    }
  }

  std::map<std::string, double> cpu_ns;
  std::map<std::string, double> per_second;
};

bool Judge(const Limit& limit, const Recorder& recorder, bool filtered) {
  if (recorder.cpu_ns.count(limit.name) == 0) {
    if (!filtered) std::printf("DID NOT RUN: %s\n", limit.name.c_str());
    return filtered;
  }
  bool held = true;
  const auto tell = [&](bool holds, double value, const char* unit,
                        const char* bound, double of) {
    held &= holds;
    std::printf("%s %s: %.0f %s, %s %.0f\n",
                holds ? "holds:" : "DOES NOT HOLD:", limit.name.c_str(), value,
                unit, bound, of);
  };
  if (limit.most_cpu_ns > 0) {
    const double ns = recorder.cpu_ns.at(limit.name);
    tell(ns <= limit.most_cpu_ns, ns, "ns of CPU", "at most",
         limit.most_cpu_ns);
  }
  if (limit.least_per_second > 0) {
    const auto found = recorder.per_second.find(limit.name);
    const double rate = found == recorder.per_second.end() ? 0 : found->second;
    tell(rate >= limit.least_per_second, rate, "a second", "at least",
         limit.least_per_second);
  }
  return held;
}

}  // namespace

int RunJudged(int argc, char** argv, const std::vector<Limit>& limits) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const std::string filter = benchmark::GetBenchmarkFilter();
  const bool filtered = !filter.empty() && filter != "all";
  Recorder recorder;
  benchmark::RunSpecifiedBenchmarks(&recorder);
  bool held = true;
  for (const Limit& limit : limits) held &= Judge(limit, recorder, filtered);
  return held ? 0 : 1;
}

}  // namespace weir::bench
