// A benchmark of Google's must not pass above its limit.
#include "tests/bench/judged.h"

#include <benchmark/benchmark.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weir::bench {
namespace {

void Counted(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(state.iterations());
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(Counted);

void Broken(benchmark::State& state) { state.SkipWithError("broken"); }
BENCHMARK(Broken);

int RunWith(const std::vector<Limit>& limits,
            std::vector<std::string> arguments = {}) {
  arguments.insert(arguments.begin(), {"bench", "--benchmark_min_time=0.001"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  const int code =
      RunJudged(static_cast<int>(argv.size()), argv.data(), limits);
  benchmark::SetBenchmarkFilter("");
  return code;
}

TEST(Judged, WhatIsWithinItsLimitsPasses) {
  EXPECT_EQ(RunWith({}), 0);
  EXPECT_EQ(
      RunWith(
          {{.name = "Counted", .most_cpu_ns = 1e9, .least_per_second = 1e-3}}),
      0);
}

TEST(Judged, WhatIsNotFails) {
  EXPECT_EQ(RunWith({{.name = "Counted", .most_cpu_ns = 1e-9}}), 1);
  EXPECT_EQ(RunWith({{.name = "Counted", .least_per_second = 1e30}}), 1);
  EXPECT_EQ(RunWith({{.name = "Counted", .most_cpu_ns = 1e9},
                     {.name = "Counted", .least_per_second = 1e30}}),
            1);
}

TEST(Judged, WhatDidNotRunFails) {
  EXPECT_EQ(RunWith({{.name = "Nobody", .most_cpu_ns = 1e9}}), 1);
  EXPECT_EQ(RunWith({{.name = "Broken", .most_cpu_ns = 1e9}}), 1);
}

TEST(Judged, WhatAFilterLeavesOutNeedNotRun) {
  const Limit left_out = {.name = "Nobody", .most_cpu_ns = 1e9};
  EXPECT_EQ(RunWith({left_out}, {"--benchmark_filter=Counted"}), 0);
  EXPECT_EQ(RunWith({left_out, {.name = "Counted", .most_cpu_ns = 1e-9}},
                    {"--benchmark_filter=Counted"}),
            1);
}

TEST(Judged, WrongUsageIsNoSuccess) { EXPECT_EQ(RunWith({}, {"--bogus"}), 2); }

}  // namespace
}  // namespace weir::bench
