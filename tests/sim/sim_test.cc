// Every scenario at random, ten million steps in all, and those that are small
// enough in every order that their bound allows, as far as some more steps go.
// `sim` runs longer.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "tests/sim/crash.h"
#include "tests/sim/scenarios/scenarios.h"

namespace weir::sim {
namespace {

constexpr uint64_t kSteps = 10'000'000;

class Simulation : public ::testing::TestWithParam<Scenario> {
 protected:
  static void SetUpTestSuite() { ReportCrashes(); }
};

std::vector<Scenario> SmallScenarios() {
  std::vector<Scenario> small = AllScenarios();
  std::erase_if(small, [](const Scenario& s) { return s.preemptions < 0; });
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
  const Exploration result =
      ExploreAll(scenario, scenario.preemptions, kSteps / 100);
  std::cout << scenario.name << ": " << result.Summary() << "\n";
  EXPECT_TRUE(result.ok()) << result.failure;
}

class AtRandom : public Simulation {};

TEST_P(AtRandom, Holds) {
  const Scenario& scenario = GetParam();
  // The large ones have half of it.
  const std::vector<Scenario> small = SmallScenarios();
  const size_t large = AllScenarios().size() - small.size();
  const uint64_t share =
      kSteps / 2 / (scenario.preemptions < 0 ? large : small.size()) + 1;
  const Exploration result = ExploreAtRandom(scenario, 1, share);
  std::cout << scenario.name << ": " << result.Summary() << "\n";
  EXPECT_TRUE(result.ok()) << result.failure;
}

INSTANTIATE_TEST_SUITE_P(Scenarios, EveryOrder,
                         ::testing::ValuesIn(SmallScenarios()), TestName);
INSTANTIATE_TEST_SUITE_P(Scenarios, AtRandom,
                         ::testing::ValuesIn(AllScenarios()), TestName);

}  // namespace
}  // namespace weir::sim
