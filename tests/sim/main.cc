// Long runs of the simulation, and replays of what they find.
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/sim/crash.h"
#include "tests/sim/scenarios/scenarios.h"

namespace weir::sim {
namespace {

int Main(int argc, char** argv) {
  CLI::App app(
      "Runs the evaluation core as logical threads, in every order or "
      "at random (docs/testing.md).");
  std::string name;
  std::string choices;
  uint64_t seed = 1;
  uint64_t steps = 10'000'000;
  int preemptions = -1;
  uint64_t replay_seed = 0;
  bool all_orders = false;
  bool trace = false;
  bool exactly = false;
  bool unreduced = false;
  bool list = false;
  app.add_option("--scenario", name,
                 "a scenario, or the beginning of several names; default: all");
  app.add_flag("--exactly", exactly, "that scenario alone, by its whole name");
  app.add_option("--steps", steps, "steps of each scenario")
      ->capture_default_str();
  app.add_option("--seed", seed, "of the first random run; then one more each")
      ->capture_default_str();
  app.add_flag("--all-orders", all_orders,
               "systematically instead of at random");
  app.add_option(
      "--preemptions", preemptions,
      "with --all-orders: at most so many (default: more and more, as long as "
      "that comes to an end in so many steps)");
  app.add_flag("--unreduced", unreduced,
               "with --all-orders: also orders that differ in nothing");
  app.add_option("--replay", choices, "one run again, by its choices");
  app.add_option("--replay-seed", replay_seed, "one random run again");
  app.add_flag("--trace", trace, "print each switch of a replay");
  app.add_flag("--list", list, "print the scenarios' names");
  CLI11_PARSE(app, argc, argv);

  ReportCrashes();
  int failures = 0;
  uint64_t total = 0;
  for (const Scenario& scenario : AllScenarios()) {
    if (scenario.name.rfind(name, 0) != 0) continue;
    if (exactly && scenario.name != name) continue;
    if (list) {
      std::printf("%s\n", scenario.name.c_str());
      continue;
    }
    // A replay is of one scenario, whose name may begin others'.
    const bool replays = !choices.empty() || replay_seed != 0;
    if (replays && scenario.name != name) continue;
    std::string summary;
    Exploration result;
    if (all_orders && preemptions < 0) {
      const Deepening more = ExploreMore(scenario, steps, !unreduced);
      summary = more.Summary();
      result = more.last;
    } else {
      result = !choices.empty()   ? Replay(scenario, choices, trace)
               : replay_seed != 0 ? ReplaySeed(scenario, replay_seed, trace)
               : all_orders
                   ? ExploreAll(scenario, preemptions, steps, !unreduced)
                   : ExploreAtRandom(scenario, seed, steps);
      summary = result.Summary();
    }
    std::printf("%-32s %s\n", scenario.name.c_str(), summary.c_str());
    std::fflush(stdout);
    total += result.steps;
    if (result.ok()) continue;
    ++failures;
    std::printf("FAILED: %s\n", result.failure.c_str());
  }
  std::printf("%llu steps in all, %d failure(s)\n",
              static_cast<unsigned long long>(total), failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace weir::sim

int main(int argc, char** argv) { return weir::sim::Main(argc, argv); }
