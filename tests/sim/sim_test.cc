// Every scenario at random, seventy million steps in all, and but for the large
// ones in every order that some number of preemptions allows, more and more of
// them as far as two million steps each go; WEIR_SIM_TIMES times as many if
// that is set. `sim` runs longer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "tests/sim/crash.h"
#include "tests/sim/scenarios/scenarios.h"

namespace weir::sim {

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

namespace {

constexpr uint64_t kEveryOrder = 2'000'000;
// No scenario has fewer states, orders, runs at random, and choices in each of
// these.
constexpr uint64_t kLeastStates = 40;
constexpr uint64_t kLeastOrders = 20;
constexpr uint64_t kLeastRuns = 100;
constexpr uint64_t kLeastChoices = 5;
// Of so many runs a leak was none.
constexpr uint64_t kMostKept = 3;

uint64_t Times() {
  const char* const times = std::getenv("WEIR_SIM_TIMES");
  return times == nullptr ? 1 : std::strtoull(times, nullptr, 10);
}

class Simulation : public ::testing::TestWithParam<Scenario> {
 protected:
  static void SetUpTestSuite() { ReportCrashes(); }
};

std::vector<Scenario> SmallScenarios() {
  std::vector<Scenario> small = AllScenarios();
  std::erase_if(small, [](const Scenario& s) { return s.large; });
  return small;
}

std::string TestName(const ::testing::TestParamInfo<Scenario>& info) {
  std::string name = info.param.name;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

class EveryOrder : public Simulation {};

TEST_P(EveryOrder, Holds) {
  const Scenario& scenario = GetParam();
  const Deepening deepening = ExploreMore(scenario, kEveryOrder * Times());
  const Exploration& result = deepening.last;
  std::cout << scenario.name << ": " << deepening.Summary() << "\n";
  EXPECT_TRUE(result.ok()) << result.failure;
  EXPECT_GE(deepening.preemptions, CompletesWith(scenario.name));
  // That it looked at all, and at more than one order.
  EXPECT_GE(result.states, kLeastStates);
  EXPECT_GE(result.executions, kLeastOrders);
  EXPECT_LE(result.kept, kMostKept);
}

class AtRandom : public Simulation {};

TEST_P(AtRandom, Holds) {
  const Scenario& scenario = GetParam();
  const Exploration result =
      ExploreAtRandom(scenario, 1, scenario.at_random * Times());
  std::cout << scenario.name << ": " << result.Summary() << "\n";
  EXPECT_TRUE(result.ok()) << result.failure;
  EXPECT_GE(result.executions, kLeastRuns);
  EXPECT_GE(result.choices, result.executions * kLeastChoices);
  EXPECT_LE(result.kept, kMostKept);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, EveryOrder,
                         ::testing::ValuesIn(SmallScenarios()), TestName);
INSTANTIATE_TEST_SUITE_P(Scenarios, AtRandom,
                         ::testing::ValuesIn(AllScenarios()), TestName);

}  // namespace
}  // namespace weir::sim
