// Runs a scenario again and again, each time in another order: systematically,
// or at random by seed.
//
// Systematically means a depth-first search over the choices of a run, which is
// executed anew for each, without keeping states (as VeriSoft does: Godefroid,
// "Model checking for programming languages using VeriSoft", POPL 1997). States
// that are equal are merged all the same, by the digest of their causes
// (ChoicePoint::state; Musuvathi and Qadeer, "Partial-order reduction for
// context-bounded state exploration", 2007): whoever comes to a state that
// was seen goes on without further branches. Chosen over dynamic partial-order
// reduction (Flanagan and Godefroid, POPL 2005) because it stays right when
// preemptions are bounded, which that does not without more ado, and the bound
// is what makes scenarios of a thousand steps tractable: most faults need two
// preemptions at most (Musuvathi and Qadeer, "Iterative context bounding",
// PLDI 2007). A state that was seen counts with what was left of the bound.
//
// At random: a run's seed chooses between switching anywhere with some
// probability, and priorities with a few places where they change (Burckhardt
// et al., "A randomized scheduler with probabilistic guarantees of finding
// bugs", ASPLOS 2010).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/sim/scheduler.h"

namespace weir::sim {

inline constexpr int kAnyPreemptions = 1'000'000;

struct Scenario {
  std::string name;
  std::function<void()> body;
  Limits limits = {};
  // With how many preemptions `make test` looks at orders one by one; -1: it is
  // too large for that, and only run at random.
  int preemptions = -1;
  // And that it comes to their end.
  bool completes = false;
};

struct Exploration {
  uint64_t executions = 0;
  uint64_t steps = 0;
  uint64_t choices = 0;   // places where there was one, over all runs
  uint64_t states = 0;    // that differ, where there was a choice
  uint64_t merged = 0;    // runs that came to one of them again
  uint64_t kept = 0;      // runs that leaked, and did not when run again
  bool complete = false;  // every order was seen
  std::string failure;    // with the command that replays it, if anything does
  std::string replay;     // what --replay takes, or the seed
  bool ok() const { return failure.empty(); }
  std::string Summary() const;
};

// Every order with at most so many preemptions, until `max_steps`.
Exploration ExploreAll(const Scenario& scenario, int max_preemptions,
                       uint64_t max_steps);
// Runs with the seeds `seed`, `seed` + 1, ... until `max_steps`.
Exploration ExploreAtRandom(const Scenario& scenario, uint64_t seed,
                            uint64_t max_steps);
// One run again: its choices, or its seed.
Exploration Replay(const Scenario& scenario, const std::string& choices,
                   bool trace);
Exploration ReplaySeed(const Scenario& scenario, uint64_t seed, bool trace);

// What a crash should say of the run it happened in; empty: none runs.
const char* RunningNow();

}  // namespace weir::sim
