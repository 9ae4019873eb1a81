// What the search leaves out differs in nothing: for small programs, made at
// random, it sees every result that a search without any reduction sees, and no
// other, whatever the bound.
#include "tests/sim/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/holders.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "tests/sim/explorer.h"
#include "tests/sim/heap.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

// Every choice at every place, in runs that are decided by what was chosen.
class Plain final : public Chooser {
 public:
  explicit Plain(int bound) : bound_(bound) {}

  void BeginRun() {
    depth_ = 0;
    left_ = bound_ == kAnyPreemptions ? kMostEarly : bound_;
  }

  size_t Choose(const ChoicePoint& point) override {
    if (depth_ == path_.size()) {
      path_.push_back({point.options.size(), 0});
    }
    Node& node = path_[depth_];
    while (Cost(point, node.chosen) > left_) ++node.chosen;
    left_ -= Cost(point, node.chosen);
    ++depth_;
    // What may come next at this place.
    node.next = node.chosen + 1;
    const int left = left_ + Cost(point, node.chosen);
    while (node.next < node.options && Cost(point, node.next) > left) {
      ++node.next;
    }
    return node.chosen;
  }

  bool NextRun() {
    while (!path_.empty() && path_.back().next >= path_.back().options) {
      path_.pop_back();
    }
    if (path_.empty()) return false;
    path_.back().chosen = path_.back().next;
    return true;
  }

 private:
  struct Node {
    size_t options = 0;
    size_t chosen = 0;
    size_t next = 0;
  };

  int Cost(const ChoicePoint& point, size_t chosen) const {
    if (point.is_value || chosen == 0) return 0;
    const bool early = point.options[chosen] == ChoicePoint::kClock;
    if (bound_ == kAnyPreemptions) return early ? 1 : 0;
    const bool comes_early = point.runnable > 0 && chosen >= point.runnable;
    return early || point.continues || comes_early ? 1 : 0;
  }

  int bound_;
  std::vector<Node> path_;
  size_t depth_ = 0;
  int left_ = 0;
};

uint64_t Next(uint64_t& state) {
  uint64_t x = state += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// What threads share, and what they do to it.
struct Shared {
  std::array<Atomic<int>, 2> atomics;
  std::array<Mutex, 2> mutexes;
  std::array<int, 2> guarded = {};
  CondVar changed;
  std::shared_ptr<int> held = std::make_shared<int>(0);
  Atomic<int> last_holder{0};
};

struct Operation {
  enum Kind : uint8_t {
    kLoad,
    kStore,
    kAdd,
    kCompareAndSet,
    kGuarded,
    kGuardedByBoth,
    kNotify,
    kNotifyUnderLock,
    kWait,
    kLetGo,
    kLook,
    kPoll,
    kNow,
    kSleep,
    kKinds,
  };
  Kind kind;
  int which;
};

using Program = std::vector<std::vector<Operation>>;

std::string Describe(const Program& program) {
  std::string text;
  for (const auto& thread : program) {
    absl::StrAppend(&text, "[");
    for (const Operation& operation : thread) {
      absl::StrAppend(&text, " ", operation.kind, ".", operation.which);
    }
    absl::StrAppend(&text, " ]");
  }
  return text;
}

Program Make(uint64_t seed, size_t threads, size_t operations) {
  Program program(threads);
  // Of few kinds, so that they meet.
  uint64_t random = seed;
  std::array<int, 3> kinds;
  for (int& kind : kinds) {
    kind = static_cast<int>(Next(random) % Operation::kKinds);
  }
  for (auto& thread : program) {
    for (size_t i = 0; i < operations; ++i) {
      thread.push_back(
          {static_cast<Operation::Kind>(kinds[Next(random) % kinds.size()]),
           static_cast<int>(Next(random) % 2)});
    }
  }
  return program;
}

// What a thread has seen is its register in the end.
void Do(const Operation& operation, int thread, Shared& shared,
        std::shared_ptr<int>& mine, int& seen) {
  const auto which = static_cast<size_t>(operation.which);
  Atomic<int>& atomic = shared.atomics[which];
  Mutex& mutex = shared.mutexes[which];
  int& guarded = shared.guarded[which];
  switch (operation.kind) {
    case Operation::kLoad:
      seen = seen * 3 + atomic.load();
      break;
    case Operation::kStore:
      atomic.store(seen + thread + 1);
      break;
    case Operation::kAdd:
      seen = seen * 3 + atomic.fetch_add(thread + 1);
      break;
    case Operation::kCompareAndSet: {
      int expected = 0;
      seen =
          seen * 3 +
          (atomic.compare_exchange_strong(expected, 5 + thread) ? 1 : expected);
      break;
    }
    case Operation::kGuarded: {
      MutexLock lock(&mutex);
      guarded = guarded * 2 + thread + 1;
      seen += guarded;
      break;
    }
    case Operation::kGuardedByBoth: {
      MutexLock first(&shared.mutexes[0]);
      shared.guarded[0] = shared.guarded[0] * 2 + thread + 1;
      MutexLock second(&shared.mutexes[1]);
      shared.guarded[1] += shared.guarded[0];
      break;
    }
    case Operation::kNotify:
      atomic.store(7);
      operation.which == 0 ? shared.changed.NotifyOne()
                           : shared.changed.NotifyAll();
      break;
    case Operation::kNotifyUnderLock: {
      MutexLock lock(&shared.mutexes[0]);
      shared.guarded[0] = 1;
      shared.changed.NotifyAll();
      break;
    }
    case Operation::kWait: {
      MutexLock lock(&shared.mutexes[0]);
      const bool in_time = shared.changed.WaitUntil(
          &shared.mutexes[0], ToTimePoint(NowNanos() + 100));
      seen = seen * 3 + (in_time ? 1 : 0) + shared.guarded[0];
      break;
    }
    case Operation::kLetGo:
      if (mine != nullptr) {
        // Copies come and go.
        std::shared_ptr<int> copy = mine;
        mine = nullptr;
        copy = nullptr;
      }
      break;
    case Operation::kLook:
      if (mine != nullptr) seen = seen * 3 + (HeldByOthers(mine) ? 1 : 0);
      break;
    case Operation::kPoll:
      for (int i = 0; i < 2 && atomic.load() == 0; ++i) Yield();
      seen = seen * 3 + atomic.load();
      break;
    case Operation::kNow:
      seen += static_cast<int>(NowNanos() % 1000);
      break;
    case Operation::kSleep:
      sim::Sleep(50 * (operation.which + 1));
      break;
    case Operation::kKinds:
      break;
  }
}

// Its results, as text, go to `results`.
std::function<void()> Body(const Program& program,
                           std::set<std::string>* results) {
  return [program, results] {
    Shared shared;
    const size_t count = program.size();
    std::vector<int> seen(count);
    int last = -1;
    // Who lets go last is seen.
    struct Tells {
      void operator()(int* held) const {
        *last = static_cast<int>(CurrentThread());
        delete held;
      }
      int* last;
    };
    shared.held = std::shared_ptr<int>(new int(0), Tells{&last});
    std::vector<std::shared_ptr<int>> holders(count, shared.held);
    shared.held = nullptr;
    SetExploring(true);
    std::vector<Thread> threads;
    for (size_t i = 0; i < count; ++i) {
      threads.emplace_back("thread", [&, i] {
        for (const Operation& operation : program[i]) {
          Do(operation, static_cast<int>(i), shared, holders[i], seen[i]);
        }
        holders[i] = nullptr;
      });
    }
    for (Thread& thread : threads) thread.Join();
    SetExploring(false);
    const OutsideHeap mine;
    results->insert(
        absl::StrCat(absl::StrJoin(seen, " "), " | ", shared.atomics[0].load(),
                     " ", shared.atomics[1].load(), " | ", shared.guarded[0],
                     " ", shared.guarded[1], " | ", last));
  };
}

// False: there are too many orders. What is no matter to other threads is no
// place to switch at, unless the bound allows any number of switches: then they
// lead to nothing else.
bool RunPlain(const Program& program, int bound,
              std::set<std::string>* results) {
  constexpr int kMost = 20'000;
  const Places places =
      bound == kAnyPreemptions ? Places::kAll : Places::kShared;
  Scheduler scheduler;
  Sharing sharing;
  Plain plain(bound);
  const std::function<void()> body = Body(program, results);
  for (int runs = 0; runs < kMost; ++runs) {
    plain.BeginRun();
    Heap heap;
    const Outcome outcome = scheduler.Run(body, plain, {}, &sharing, places);
    EXPECT_EQ(outcome.failure, "");
    bool leaked = false;
    EXPECT_EQ(heap.End(&leaked), "");
    if (::testing::Test::HasFailure()) return false;
    if (sharing.learned() && places == Places::kShared) {
      plain = Plain(bound);
      results->clear();
    } else if (!plain.NextRun()) {
      return true;
    }
  }
  return false;
}

// As ExploreAll does it, but that it has to find out in the search itself what
// is shared.
void RunSearch(const Program& program, int bound, bool reduces,
               std::set<std::string>* results) {
  Scheduler scheduler;
  Sharing sharing;
  auto search = std::make_unique<Search>(bound, &sharing, reduces);
  // A run that has come to a state that was seen goes on as it likes.
  std::set<std::string> of_run;
  const std::function<void()> body = Body(program, &of_run);
  for (;;) {
    search->BeginRun();
    of_run.clear();
    Heap heap;
    const Outcome outcome =
        scheduler.Run(body, *search, {}, &sharing, Places::kShared);
    ASSERT_EQ(outcome.failure, "");
    bool leaked = false;
    ASSERT_EQ(heap.End(&leaked), "");
    if (sharing.learned()) {
      search = std::make_unique<Search>(bound, &sharing, reduces);
      results->clear();
      continue;
    }
    ASSERT_FALSE(search->doubts());
    if (!search->over()) results->merge(of_run);
    if (!search->NextRun()) return;
  }
}

// How many programs are made.
uint64_t Programs() {
  const char* const programs = std::getenv("WEIR_SIM_PROGRAMS");
  return programs == nullptr ? 300 : std::strtoull(programs, nullptr, 10);
}

class SearchTest : public ::testing::TestWithParam<int> {};

// False: there are too many orders to compare.
bool Compare(uint64_t seed, int bound) {
  const size_t threads = 2 + seed % 2;
  const size_t operations = 1 + seed % (bound == kAnyPreemptions ? 2 : 3);
  const Program program = Make(seed, threads, operations);
  std::set<std::string> all;
  if (!RunPlain(program, bound, &all)) return false;
  for (const bool reduces : {false, true}) {
    std::set<std::string> found;
    RunSearch(program, bound, reduces, &found);
    EXPECT_EQ(found, all) << seed << (reduces ? ", reduced: " : ": ")
                          << Describe(program);
  }
  return true;
}

TEST_P(SearchTest, SeesWhatASearchWithoutReductionsSees) {
  int compared = 0;
  for (uint64_t seed = 1; seed <= Programs() && !HasFailure(); ++seed) {
    compared += Compare(seed, GetParam()) ? 1 : 0;
  }
  std::cout << compared << " programs\n";
  EXPECT_GE(compared, Programs() / 3);
}

// Of the deeds of another thread that one may come before, the last one: the
// bound may not allow that order, and allow an earlier one.
TEST(Search, SeesWhatComesBeforeAnEarlierDeed) {
  EXPECT_TRUE(Compare(2243, 1));
}

// From when on a thread sleeps is part of the state, though it does not look at
// the clock; and who is woken by the time comes after that time, not after what
// the clock shows when it goes on.
TEST(Search, SeesWhoWakesInTime) { EXPECT_TRUE(Compare(9587, 2)); }

INSTANTIATE_TEST_SUITE_P(Bounds, SearchTest,
                         ::testing::Values(0, 1, 2, kAnyPreemptions));

}  // namespace
}  // namespace weir::sim
