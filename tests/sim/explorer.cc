#include "tests/sim/explorer.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/sim/heap.h"
#include "tests/sim/search.h"
#include "tests/sim/sharing.h"

namespace weir::sim {
namespace {

uint64_t Next(uint64_t& state) {
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// "12:1,30.2:3": at step 12 the option 1, at the third place of step 30 the
// option 3.
std::string ToText(const std::vector<Turn>& turns) {
  std::string text;
  for (const Turn& turn : turns) {
    absl::StrAppend(&text, text.empty() ? "" : ",", turn.step);
    if (turn.of_step > 0) absl::StrAppend(&text, ".", turn.of_step);
    absl::StrAppend(&text, ":", turn.choice);
  }
  return text.empty() ? "0:0" : text;
}

std::vector<Turn> FromText(const std::string& text) {
  std::vector<Turn> turns;
  for (const auto& part : absl::StrSplit(text, ',')) {
    const std::vector<std::string> numbers =
        absl::StrSplit(part, absl::ByAnyChar(":."));
    Turn turn;
    if (numbers.size() < 2 || numbers.size() > 3 ||
        !absl::SimpleAtoi(numbers.front(), &turn.step) ||
        !absl::SimpleAtoi(numbers.back(), &turn.choice) ||
        (numbers.size() == 3 && !absl::SimpleAtoi(numbers[1], &turn.of_step))) {
      std::fprintf(stderr, "--replay: cannot read '%s'\n", text.c_str());
      std::exit(2);
    }
    turns.push_back(turn);
  }
  return turns;
}

class Replayed final : public Chooser {
 public:
  explicit Replayed(std::vector<Turn> turns) : turns_(std::move(turns)) {}

  size_t Choose(const ChoicePoint& point) override {
    if (at_ == turns_.size() || turns_[at_].step != point.step ||
        turns_[at_].of_step != point.of_step) {
      return 0;
    }
    const size_t choice = turns_[at_++].choice;
    if (choice >= point.options.size()) {
      Fail(absl::StrCat("choice ", at_, " of the replay is ", choice, " of ",
                        point.options.size()));
    }
    return choice;
  }

 private:
  const std::vector<Turn> turns_;
  size_t at_ = 0;
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

// The run that is on, for a crash.
struct {
  const Scenario* scenario = nullptr;
  const Search* search = nullptr;
  uint64_t seed = 0;
  std::string replay;
} now_running;

// One run, with its memory looked after.
struct Execution {
  Outcome outcome;
  bool leaked = false;  // that alone
};

Execution RunOnce(Scheduler& scheduler, const Scenario& scenario,
                  Chooser& chooser, Exploration& result,
                  Sharing* sharing = nullptr, Places places = Places::kAll) {
  Execution run;
  Heap heap;
  run.outcome =
      scheduler.Run(scenario.body, chooser, scenario.limits, sharing, places);
  if (run.outcome.ok()) run.outcome.failure = heap.End(&run.leaked);
  ++result.executions;
  result.steps += run.outcome.steps;
  result.choices += run.outcome.choices;
  return run;
}

std::string SeedOption(uint64_t seed) {
  return absl::StrCat("--replay-seed=", seed);
}

void ReportFailure(const Scenario& scenario, const std::string& how,
                   std::string failure, Exploration& result) {
  result.replay = how;
  result.failure =
      absl::StrCat(std::move(failure),
                   "replay: build/test-bin/sim --scenario=", scenario.name, " ",
                   how, " --trace");
}

// What a scenario makes once and keeps, in whatever static variables, is made
// by then.
void MakeWhatIsKept(Scheduler& scheduler, const Scenario& scenario) {
  Replayed nothing({});
  const Heap heap;
  scheduler.Run(scenario.body, nothing, scenario.limits);
}

bool WarmUp(Scheduler& scheduler, const Scenario& scenario,
            Exploration& result) {
  const std::string how = "--replay=0:0";
  now_running = {&scenario, nullptr, 0, how};
  MakeWhatIsKept(scheduler, scenario);
  Replayed nothing({});
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
  MakeWhatIsKept(scheduler, scenario);
  now_running = {&scenario, nullptr, 0, how};
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

// One run by its seed; false if it is to be the last.
bool RunSeed(Scheduler& scheduler, const Scenario& scenario, uint64_t seed,
             Exploration& result, Sharing* sharing = nullptr) {
  now_running = {&scenario, nullptr, seed, ""};
  AtRandom chooser(seed);
  const Execution run = RunOnce(scheduler, scenario, chooser, result, sharing);
  return run.outcome.ok() || MayGoOn(scenario, run, SeedOption(seed),
                                     std::make_unique<AtRandom>(seed), result);
}

// What most orders show to be shared is known before the search, which begins
// anew for each that it finds.
constexpr uint64_t kRunsWithoutNews = 20;
constexpr uint64_t kMostRunsBefore = 1000;

bool LearnWhatIsShared(Scheduler& scheduler, const Scenario& scenario,
                       Sharing& sharing, Exploration& result) {
  uint64_t without = 0;
  for (uint64_t seed = 1; seed <= kMostRunsBefore && without < kRunsWithoutNews;
       ++seed) {
    if (!RunSeed(scheduler, scenario, seed, result, &sharing)) return false;
    without = sharing.learned() ? 0 : without + 1;
  }
  return true;
}

}  // namespace

void DescribeRun(void (*print)(const char* text)) {
  if (now_running.scenario == nullptr) return;
  print("replay: build/test-bin/sim --scenario=");
  print(now_running.scenario->name.c_str());
  print(" ");
  if (now_running.search != nullptr) {
    print("--replay=");
    print(ToText(now_running.search->turns()).c_str());
  } else if (now_running.seed != 0) {
    print(SeedOption(now_running.seed).c_str());
  } else {
    print(now_running.replay.c_str());
  }
  print(" --trace\n");
}

std::string Exploration::Summary() const {
  return absl::StrCat(
      executions, " runs, ", steps, " steps, ", choices, " choices",
      states == 0 ? ""
                  : absl::StrCat(", ", shared, " kinds of objects shared, ",
                                 states, " states, ", merged, " merged"),
      kept == 0 ? "" : absl::StrCat(", ", kept, " leaks that were no leaks"),
      complete ? ", every order seen" : "");
}

Exploration ExploreAll(const Scenario& scenario, int max_preemptions,
                       uint64_t max_steps, bool reduces) {
  Exploration result;
  Scheduler scheduler;
  Sharing sharing;
  if (!WarmUp(scheduler, scenario, result) ||
      !LearnWhatIsShared(scheduler, scenario, sharing, result)) {
    return result;
  }
  auto search = std::make_unique<Search>(max_preemptions, &sharing, reduces);
  do {
    now_running = {&scenario, search.get(), 0, ""};
    search->BeginRun();
    const Execution run = RunOnce(scheduler, scenario, *search, result,
                                  &sharing, Places::kShared);
    if (!run.outcome.ok()) {
      const std::vector<Turn> turns = search->turns();
      if (!MayGoOn(scenario, run, absl::StrCat("--replay=", ToText(turns)),
                   std::make_unique<Replayed>(turns), result)) {
        break;
      }
    }
    if (search->doubts() && !sharing.learned()) {
      ReportFailure(
          scenario, absl::StrCat("--replay=", ToText(search->turns())),
          "the scenario is not deterministic: what a thread does is decided "
          "by something else than what it has seen\n",
          result);
      break;
    }
    if (sharing.learned()) {
      search = std::make_unique<Search>(max_preemptions, &sharing, reduces);
      continue;
    }
    result.complete = !search->NextRun();
  } while (!result.complete && result.steps + result.executions < max_steps);
  now_running = {};
  result.states = search->states();
  result.merged = search->merged();
  result.shared = sharing.size();
  return result;
}

std::string Deepening::Summary() const {
  return absl::StrCat(
      preemptions < 0 ? "begun"
      : preemptions == kAnyPreemptions
          ? "all"
          : absl::StrCat("all with ", preemptions, " preemption(s)"),
      "; ", last.Summary());
}

Deepening ExploreMore(const Scenario& scenario, uint64_t max_steps,
                      bool reduces) {
  Deepening deepening;
  uint64_t steps = 0;
  for (const int preemptions : {0, 1, 2, 3, kAnyPreemptions}) {
    deepening.last = ExploreAll(scenario, preemptions, max_steps, reduces);
    deepening.last.steps += steps;
    steps = deepening.last.steps;
    if (!deepening.last.complete) break;
    deepening.preemptions = preemptions;
  }
  return deepening;
}

Exploration ExploreAtRandom(const Scenario& scenario, uint64_t seed,
                            uint64_t max_steps) {
  Exploration result;
  Scheduler scheduler;
  if (!WarmUp(scheduler, scenario, result)) return result;
  while (result.steps + result.executions < max_steps &&
         RunSeed(scheduler, scenario, seed, result)) {
    ++seed;
  }
  now_running = {};
  return result;
}

Exploration Replay(const Scenario& scenario, const std::string& choices,
                   bool trace) {
  return ReplayWith(
      scenario, absl::StrCat("--replay=", choices), trace,
      [&choices] { return std::make_unique<Replayed>(FromText(choices)); });
}

Exploration ReplaySeed(const Scenario& scenario, uint64_t seed, bool trace) {
  return ReplayWith(scenario, SeedOption(seed), trace,
                    [seed] { return std::make_unique<AtRandom>(seed); });
}

}  // namespace weir::sim
