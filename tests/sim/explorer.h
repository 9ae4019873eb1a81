// Runs a scenario again and again, each time in another order: systematically,
// or at random by seed.
//
// Systematically means a depth-first search over the choices of a run, which is
// executed anew for each, without keeping states (as VeriSoft does: Godefroid,
// "Model checking for programming languages using VeriSoft", POPL 1997). States
// that are equal are merged all the same, by the digest of their causes
// (ChoicePoint::state; Musuvathi and Qadeer, "Partial-order reduction for
// context-bounded state exploration", 2007): whoever comes to a state that
// was seen goes on without further branches. Nobody even goes there where what
// the next thread will do up to its next place is known from another execution,
// in which its causes were the same. Threads are switched only where that can
// matter (sharing.h), and of the orders that are left only those are looked at
// that differ in what is seen of them (search.h). Preemptions are bounded: that
// is what makes scenarios of a thousand steps tractable, and most faults need
// two at most (Musuvathi and Qadeer, "Iterative context bounding", PLDI 2007).
// A state that was seen counts with what was left of the bound.
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

// Then at most kMostEarly times does time go on while a thread could run, which
// else is a preemption as well.
inline constexpr int kAnyPreemptions = 1'000'000;
inline constexpr int kMostEarly = 2;

struct Scenario {
  std::string name;
  std::function<void()> body;
  Limits limits = {};
  // It is only run at random.
  bool large = false;
  // Steps of that in `make test`.
  uint64_t at_random = 300'000;
};

struct Exploration {
  uint64_t executions = 0;
  uint64_t steps = 0;
  uint64_t choices = 0;   // places where there was one, over all runs
  uint64_t states = 0;    // that differ
  uint64_t merged = 0;    // times that one of them was met again, or seen ahead
  uint64_t shared = 0;    // kinds of objects that threads were switched at
  uint64_t kept = 0;      // runs that leaked, and did not when run again
  bool complete = false;  // every order was seen
  std::string failure;    // with the command that replays it, if anything does
  std::string replay;     // what --replay takes, or the seed
  bool ok() const { return failure.empty(); }
  std::string Summary() const;
};

// Every order with at most so many preemptions, until `max_steps`.
Exploration ExploreAll(const Scenario& scenario, int max_preemptions,
                       uint64_t max_steps, bool reduces = true);
// The same with more and more preemptions, as long as that comes to an end;
// `max_steps` each time. (Musuvathi and Qadeer, PLDI 2007.)
struct Deepening {
  int preemptions = -1;  // the most with which every order was seen
  Exploration last;      // that run, or the first that did not come to its end
  std::string Summary() const;
};
Deepening ExploreMore(const Scenario& scenario, uint64_t max_steps,
                      bool reduces = true);
// Runs with the seeds `seed`, `seed` + 1, ... until `max_steps`.
Exploration ExploreAtRandom(const Scenario& scenario, uint64_t seed,
                            uint64_t max_steps);
// One run again: its choices, or its seed.
Exploration Replay(const Scenario& scenario, const std::string& choices,
                   bool trace);
Exploration ReplaySeed(const Scenario& scenario, uint64_t seed, bool trace);

// What a crash should say of the run it happened in, to `print`.
void DescribeRun(void (*print)(const char* text));

}  // namespace weir::sim
