#include "tests/sim/explorer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/sim/heap.h"

namespace weir::sim {
namespace {

// Of the run that is on, for a crash.
std::string running_now;

uint64_t Next(uint64_t& state) {
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Choices as text: those that are not 0, each with how many lie before it.
std::string ToText(const std::vector<size_t>& choices) {
  std::string text;
  size_t zeros = 0;
  for (const size_t choice : choices) {
    if (choice == 0) {
      ++zeros;
      continue;
    }
    absl::StrAppend(&text, text.empty() ? "" : ",", zeros, ":", choice);
    zeros = 0;
  }
  return text.empty() ? "0:0" : text;
}

std::vector<size_t> FromText(const std::string& text) {
  std::vector<size_t> choices;
  for (const auto& part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    uint64_t zeros = 0;
    uint64_t choice = 0;
    if (!absl::SimpleAtoi(pair.first, &zeros) ||
        !absl::SimpleAtoi(pair.second, &choice)) {
      std::fprintf(stderr, "--replay: cannot read '%s'\n", text.c_str());
      std::exit(2);
    }
    choices.insert(choices.end(), zeros, 0);
    choices.push_back(choice);
  }
  return choices;
}

class Replayed final : public Chooser {
 public:
  explicit Replayed(std::vector<size_t> choices)
      : choices_(std::move(choices)) {}

  size_t Choose(const ChoicePoint& point) override {
    const size_t choice = at_ < choices_.size() ? choices_[at_] : 0;
    ++at_;
    if (choice >= point.options.size()) {
      Fail(absl::StrCat("choice ", at_, " of the replay is ", choice, " of ",
                        point.options.size()));
    }
    return choice;
  }

 private:
  const std::vector<size_t> choices_;
  size_t at_ = 0;
};

class Systematic final : public Chooser {
 public:
  explicit Systematic(int max_preemptions)
      : max_preemptions_(max_preemptions) {}

  void BeginRun() {
    depth_ = 0;
    left_ = max_preemptions_;
    merged_ = false;
  }

  size_t Choose(const ChoicePoint& point) override {
    if (merged_) return 0;
    if (depth_ == path_.size()) {
      if (!point.is_value && !IsNew(point)) {
        merged_ = true;
        ++merged_runs_;
        return 0;
      }
      Node node;
      node.options = point.options.size();
      node.left = left_;
      node.continues = !point.is_value && point.continues;
      node.clock = !point.is_value && point.options.size() > 1 &&
                   point.options.back() == ChoicePoint::kClock;
      path_.push_back(node);
    }
    const Node& node = path_[depth_++];
    if (node.options != point.options.size()) {
      Fail("the scenario is not deterministic: other choices than before");
    }
    left_ = node.left - Cost(node, node.chosen);
    return node.chosen;
  }

  // False: there is no other order.
  bool NextRun() {
    while (!path_.empty()) {
      Node& node = path_.back();
      while (++node.chosen < node.options) {
        if (Cost(node, node.chosen) <= node.left) return true;
      }
      path_.pop_back();
    }
    return false;
  }

  std::vector<size_t> choices() const {
    std::vector<size_t> choices;
    for (const Node& node : path_) choices.push_back(node.chosen);
    return choices;
  }
  uint64_t states() const { return seen_.size(); }
  uint64_t merged_runs() const { return merged_runs_; }

 private:
  struct Node {
    size_t options = 0;
    size_t chosen = 0;
    int left = 0;
    bool continues = false;
    bool clock = false;  // the last option is that time goes on
  };

  static int Cost(const Node& node, size_t chosen) {
    if (chosen == 0) return 0;
    if (node.continues) return 1;
    return node.clock && chosen + 1 == node.options ? 1 : 0;
  }

  bool IsNew(const ChoicePoint& point) {
    // Who runs already matters to what is left of the bound alone.
    uint64_t key = point.state;
    if (max_preemptions_ != kAnyPreemptions && point.continues) {
      key ^= (static_cast<uint64_t>(point.running) + 1) * 0x9e3779b97f4a7c15;
    }
    const int left = max_preemptions_ == kAnyPreemptions ? 0 : left_;
    const auto [it, added] = seen_.try_emplace(key, left);
    if (added) return true;
    if (it->second >= left) return false;
    it->second = left;
    return true;
  }

  const int max_preemptions_;
  std::vector<Node> path_;
  size_t depth_ = 0;
  int left_ = 0;
  bool merged_ = false;
  uint64_t merged_runs_ = 0;
  std::unordered_map<uint64_t, int> seen_;  // and what was left
};

class AtRandom final : public Chooser {
 public:
  explicit AtRandom(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15 + 1) {
    const uint64_t kind = Next(random_) % 8;
    by_priority_ = kind >= 4;
    constexpr uint64_t kEvery[] = {2, 4, 16, 64};
    switch_every_ = kEvery[kind % 4];
    time_every_ = uint64_t{16} << (Next(random_) % 6);
    if (!by_priority_) return;
    const size_t changes = 1 + Next(random_) % 4;
    const uint64_t length = uint64_t{128} << (Next(random_) % 5);
    for (size_t i = 0; i < changes; ++i) {
      changes_.push_back(Next(random_) % length);
    }
  }

  size_t Choose(const ChoicePoint& point) override {
    ++points_;
    const size_t count = point.options.size();
    if (point.is_value) return Next(random_) % count;
    const bool clock = point.options.back() == ChoicePoint::kClock;
    if (clock && Next(random_) % time_every_ == 0) return count - 1;
    const size_t threads = clock ? count - 1 : count;
    if (threads <= 1) return 0;
    if (by_priority_) return ByPriority(point, threads);
    if (point.continues && Next(random_) % switch_every_ != 0) return 0;
    return Next(random_) % threads;
  }

 private:
  size_t ByPriority(const ChoicePoint& point, size_t threads) {
    const bool change =
        std::find(changes_.begin(), changes_.end(), points_) != changes_.end();
    // Also where a thread that spins would keep the others from running.
    if (change || Next(random_) % 256 == 0) {
      const size_t best = Best(point, threads);
      priorities_[static_cast<size_t>(point.options[best])] = --lowest_;
    }
    return Best(point, threads);
  }

  size_t Best(const ChoicePoint& point, size_t threads) {
    size_t best = 0;
    for (size_t i = 1; i < threads; ++i) {
      if (Priority(point.options[i]) > Priority(point.options[best])) best = i;
    }
    return best;
  }

  int64_t Priority(int thread) {
    const auto index = static_cast<size_t>(thread);
    while (priorities_.size() <= index) {
      priorities_.push_back(static_cast<int64_t>(Next(random_) >> 2));
    }
    return priorities_[index];
  }

  uint64_t random_;
  bool by_priority_ = false;
  uint64_t switch_every_ = 2;
  uint64_t time_every_ = 64;
  std::vector<uint64_t> changes_;
  uint64_t points_ = 0;
  std::vector<int64_t> priorities_;
  int64_t lowest_ = 0;
};

// One run, with its memory looked after.
struct Execution {
  Outcome outcome;
  bool leaked = false;  // that alone
};

Execution RunOnce(Scheduler& scheduler, const Scenario& scenario,
                  Chooser& chooser, Exploration& result) {
  Execution run;
  Heap heap;
  run.outcome = scheduler.Run(scenario.body, chooser, scenario.limits);
  if (run.outcome.ok()) run.outcome.failure = heap.End(&run.leaked);
  ++result.executions;
  result.steps += run.outcome.steps;
  result.choices += run.outcome.choices;
  return run;
}

std::string ReplayCommand(const Scenario& scenario, const std::string& how) {
  return absl::StrCat("replay: build/test-bin/sim --scenario=", scenario.name,
                      " ", how, " --trace");
}

void ReportFailure(const Scenario& scenario, const std::string& how,
                   std::string failure, Exploration& result) {
  result.replay = how;
  result.failure =
      absl::StrCat(std::move(failure), ReplayCommand(scenario, how));
}

// What a scenario makes once and keeps, in whatever static variables, is made
// by now.
bool WarmUp(Scheduler& scheduler, const Scenario& scenario,
            Exploration& result) {
  const std::string how = "--replay=0:0";
  running_now = ReplayCommand(scenario, how);
  Replayed nothing({});
  scheduler.Run(scenario.body, nothing, scenario.limits);
  Exploration uncounted;
  const Outcome outcome =
      RunOnce(scheduler, scenario, nothing, uncounted).outcome;
  if (!outcome.ok()) ReportFailure(scenario, how, outcome.failure, result);
  return outcome.ok();
}

Exploration ReplayWith(const Scenario& scenario, const std::string& how,
                       bool trace,
                       const std::function<std::unique_ptr<Chooser>()>& make) {
  Exploration result;
  Scheduler scheduler;
  Replayed nothing({});
  scheduler.Run(scenario.body, nothing, scenario.limits);
  running_now = ReplayCommand(scenario, how);
  const std::unique_ptr<Chooser> chooser = make();
  scheduler.set_trace(trace);
  result.failure =
      RunOnce(scheduler, scenario, *chooser, result).outcome.failure;
  result.replay = how;
  return result;
}

// Whether a run that failed counts as good; else `result` says why not. A leak
// that was seen once may be what somebody keeps in a static variable from now
// on; one that is there again is none. Everything else is a failure, though it
// come only once: then the scenario, or what it runs, is not decided by its
// choices alone.
bool MayGoOn(const Scenario& scenario, const Execution& run,
             const std::string& how, std::unique_ptr<Chooser> replay,
             Exploration& result) {
  Scheduler scheduler;
  Exploration uncounted;
  const Outcome again =
      RunOnce(scheduler, scenario, *replay, uncounted).outcome;
  if (again.ok() && run.leaked) {
    ++result.kept;
    return true;
  }
  ReportFailure(scenario, how,
                again.ok()
                    ? absl::StrCat(run.outcome.failure,
                                   "it does not fail when it is replayed\n")
                    : run.outcome.failure,
                result);
  return false;
}

}  // namespace

const char* RunningNow() { return running_now.c_str(); }

std::string Exploration::Summary() const {
  return absl::StrCat(
      executions, " runs, ", steps, " steps, ", choices, " choices, ", states,
      " states, ", merged, " merged",
      kept == 0 ? "" : absl::StrCat(", ", kept, " leaks that were no leaks"),
      complete ? ", every order seen" : "");
}

Exploration ExploreAll(const Scenario& scenario, int max_preemptions,
                       uint64_t max_steps) {
  Exploration result;
  Scheduler scheduler;
  if (!WarmUp(scheduler, scenario, result)) return result;
  Systematic search(max_preemptions);
  do {
    running_now = ReplayCommand(
        scenario, absl::StrCat("--replay=", ToText(search.choices())));
    search.BeginRun();
    const Execution run = RunOnce(scheduler, scenario, search, result);
    if (!run.outcome.ok()) {
      const std::vector<size_t> choices = search.choices();
      if (!MayGoOn(scenario, run, absl::StrCat("--replay=", ToText(choices)),
                   std::make_unique<Replayed>(choices), result)) {
        break;
      }
    }
    result.complete = !search.NextRun();
  } while (!result.complete && result.steps + result.executions < max_steps);
  result.states = search.states();
  result.merged = search.merged_runs();
  return result;
}

Exploration ExploreAtRandom(const Scenario& scenario, uint64_t seed,
                            uint64_t max_steps) {
  Exploration result;
  Scheduler scheduler;
  if (!WarmUp(scheduler, scenario, result)) return result;
  for (; result.steps + result.executions < max_steps; ++seed) {
    const std::string how = absl::StrCat("--replay-seed=", seed);
    running_now = ReplayCommand(scenario, how);
    AtRandom chooser(seed);
    const Execution run = RunOnce(scheduler, scenario, chooser, result);
    if (!run.outcome.ok() &&
        !MayGoOn(scenario, run, how, std::make_unique<AtRandom>(seed),
                 result)) {
      break;
    }
  }
  return result;
}

Exploration Replay(const Scenario& scenario, const std::string& choices,
                   bool trace) {
  return ReplayWith(
      scenario, absl::StrCat("--replay=", choices), trace,
      [&choices] { return std::make_unique<Replayed>(FromText(choices)); });
}

Exploration ReplaySeed(const Scenario& scenario, uint64_t seed, bool trace) {
  return ReplayWith(scenario, absl::StrCat("--replay-seed=", seed), trace,
                    [seed] { return std::make_unique<AtRandom>(seed); });
}

}  // namespace weir::sim
