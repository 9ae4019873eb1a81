// All scenarios, one file a topic. To add one: a function that makes its body,
// an entry in its topic's Add function; docs/testing.md goes through it.
#pragma once

#include <string>
#include <vector>

#include "tests/sim/explorer.h"

namespace weir::sim {

void AddPoints(std::vector<Scenario>& all);
void AddHealth(std::vector<Scenario>& all);
void AddPool(std::vector<Scenario>& all);
void AddExchange(std::vector<Scenario>& all);
void AddOccupancy(std::vector<Scenario>& all);
void AddWorks(std::vector<Scenario>& all);
void AddDeferred(std::vector<Scenario>& all);
void AddEngines(std::vector<Scenario>& all);
void AddRandom(std::vector<Scenario>& all);

std::vector<Scenario> AllScenarios();

// The most preemptions with which `make test` comes to the end of a scenario's
// orders, at the least; -1: it only begins.
int CompletesWith(const std::string& name);

}  // namespace weir::sim
