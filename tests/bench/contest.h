// Servers against each other: each is a process of its own on one half of the
// CPUs, loaded in turn from this one on the other half, so that no server pays
// for the generator. Says what each request cost, and whether what must hold
// does. Used by one thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::bench {

// Serves until it is destroyed.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual std::string address() const = 0;
  virtual pid_t pid() const = 0;  // of the process that serves
};
using ContenderOr = absl::StatusOr<std::unique_ptr<Contender>>;

struct Entrant {
  std::string name;
  // Called on the servers' CPUs: a process that it starts stays there.
  std::function<ContenderOr()> start;
};

// What this process was started with is put back in the end.
struct Contest {
  std::vector<Entrant> entrants;  // the first is the rival
  std::string method;
  std::string request;
  // Whether a reply is right; asked of one in each run.
  std::function<bool(const std::string& reply)> is_right;
  int callers = 64;
  double seconds = 2;        // of a run; longer where it saw no answer
  int rounds = 3;            // each begins with another server
  bool shared_cpus = false;  // both sides on all CPUs
};

// What an entrant must hold against the rival, in the median of the rounds.
struct MustHold {
  std::string name;
  double least_ratio = 0;                       // of calls per second
  std::optional<double> most_more_p50_us = {};  // than the rival's
};

// Runs the contest and prints it, a line for each server and one for each
// bound. False if a bound does not hold, or a server failed or lied.
bool Hold(const Contest& contest, const std::vector<MustHold>& bounds);

// One server in one round.
struct Figures {
  double per_second = 0;
  double p50_us = 0;
  double p99_us = 0;
  double cpu_us = 0;  // of the server, a request
};

// Prints a line for each part of the bound. The rounds are the same of both;
// without any nothing holds.
bool Holds(const MustHold& bound, const std::vector<Figures>& rival,
           const std::vector<Figures>& own);

}  // namespace weir::bench
