#include "tests/sim/scenarios/scenarios.h"

namespace weir::sim {

std::vector<Scenario> AllScenarios() {
  std::vector<Scenario> all;
  AddPoints(all);
  AddHealth(all);
  AddPool(all);
  AddExchange(all);
  AddOccupancy(all);
  AddWorks(all);
  AddDeferred(all);
  AddEngines(all);
  AddRandom(all);
  return all;
}

}  // namespace weir::sim
