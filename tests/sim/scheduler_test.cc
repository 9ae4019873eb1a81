// The tool itself: it finds what it says it finds, sees every order, merges
// equal states, and replays.
#include "tests/sim/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "tests/sim/explorer.h"

namespace weir::sim {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSteps = 1'000'000;

// Both threads read, add and write, with a place to switch in between.
void LoseAnUpdate() {
  Atomic<int> count{0};
  const auto add = [&count] { count.store(count.load() + 1); };
  SetExploring(true);
  Thread first("first", add);
  Thread second("second", add);
  first.Join();
  second.Join();
  SetExploring(false);
  Check(count.load() == 2, "an update is lost");
}

TEST(Scheduler, FindsALostUpdateInEveryWay) {
  const Scenario scenario{"lost", LoseAnUpdate};
  const Exploration all = ExploreAll(scenario, kAnyPreemptions, kSteps);
  EXPECT_THAT(all.failure, HasSubstr("an update is lost"));
  const Exploration bounded = ExploreAll(scenario, 1, kSteps);
  EXPECT_THAT(bounded.failure, HasSubstr("an update is lost"));
  const Exploration random = ExploreAtRandom(scenario, 1, kSteps);
  EXPECT_THAT(random.failure, HasSubstr("an update is lost"));
}

TEST(Scheduler, WithoutPreemptionNothingIsLost) {
  const Exploration none = ExploreAll({"lost", LoseAnUpdate}, 0, kSteps);
  EXPECT_EQ(none.failure, "");
  EXPECT_TRUE(none.complete);
}

TEST(Scheduler, ReplaysWhatItFound) {
  const Scenario scenario{"lost", LoseAnUpdate};
  const Exploration found = ExploreAll(scenario, kAnyPreemptions, kSteps);
  ASSERT_THAT(found.replay, HasSubstr("--replay="));
  const std::string choices =
      found.replay.substr(std::string("--replay=").size());
  EXPECT_THAT(Replay(scenario, choices, false).failure,
              HasSubstr("an update is lost"));
  EXPECT_EQ(Replay(scenario, "0:0", false).failure, "");

  const Exploration random = ExploreAtRandom(scenario, 7, kSteps);
  const std::string how = "--replay-seed=";
  ASSERT_THAT(random.replay, HasSubstr(how));
  EXPECT_THAT(
      ReplaySeed(scenario, std::stoull(random.replay.substr(how.size())), false)
          .failure,
      HasSubstr("an update is lost"));
}

TEST(Scheduler, FindsADeadlock) {
  const Exploration found = ExploreAll({"deadlock",
                                        [] {
                                          Mutex a, b;
                                          SetExploring(true);
                                          Thread other("other", [&] {
                                            MutexLock first(&a);
                                            MutexLock second(&b);
                                          });
                                          {
                                            MutexLock first(&b);
                                            MutexLock second(&a);
                                          }
                                          other.Join();
                                        }},
                                       kAnyPreemptions, kSteps);
  EXPECT_THAT(found.failure, HasSubstr("a deadlock, or a lost wake-up"));
  EXPECT_THAT(found.failure, HasSubstr("other: locks, whose lock [0] has"));
}

// The flag is looked at before the lock is taken, and the notification may come
// in between.
TEST(Scheduler, FindsALostWakeUp) {
  const auto body = [](bool right) {
    return [right] {
      Mutex mu;
      CondVar set;
      Atomic<bool> flag{false};
      SetExploring(true);
      Thread waiter("waiter", [&] {
        if (flag.load()) return;
        MutexLock lock(&mu);
        if (right && flag.load()) return;
        set.Wait(&mu);
      });
      flag.store(true);
      {
        MutexLock lock(&mu);
        set.NotifyAll();
      }
      waiter.Join();
    };
  };
  EXPECT_THAT(ExploreAll({"lost wake-up", body(false)}, kAnyPreemptions, kSteps)
                  .failure,
              HasSubstr("a lost wake-up"));
  const Exploration right =
      ExploreAll({"kept", body(true)}, kAnyPreemptions, kSteps);
  EXPECT_EQ(right.failure, "");
  EXPECT_TRUE(right.complete);
}

TEST(Scheduler, FindsALivelock) {
  const Exploration found = ExploreAll({"livelock",
                                        [] {
                                          Mutex mu;
                                          for (;;) MutexLock lock(&mu);
                                        },
                                        {.idle_steps = 1000}},
                                       0, kSteps);
  EXPECT_THAT(found.failure, HasSubstr("a livelock"));
}

TEST(Scheduler, FindsTheUseOfADestroyedLock) {
  const auto body = [] {
    auto mu = std::make_unique<Mutex>();
    SetExploring(true);
    Thread other("other", [used = mu.get()] { MutexLock lock(used); });
    mu = nullptr;
    other.Join();
  };
  EXPECT_NE(ExploreAll({"destroyed", body}, kAnyPreemptions, kSteps).failure,
            "");
}

TEST(Scheduler, FindsALeakAndAWriteToFreedMemory) {
  static int* volatile kept;
  const auto leak = [] {
    kept = new int(1);
    Check(kept != nullptr, "a block");
  };
  EXPECT_THAT(ExploreAll({"leak", leak}, 0, kSteps).failure,
              HasSubstr("leaked: 1"));
  const auto write = [] {
    auto block = std::make_unique<int>(1);
    volatile uintptr_t address = reinterpret_cast<uintptr_t>(block.get());
    block = nullptr;
    *reinterpret_cast<volatile int*>(address) = 2;
  };
  EXPECT_THAT(ExploreAll({"freed", write}, 0, kSteps).failure,
              HasSubstr("written to after it had been freed"));
}

// What is not decided by its choices is told, not dropped: a failure that comes
// once, and another number of choices than before.
TEST(Scheduler, ReportsWhatDoesNotReplay) {
  static int runs;
  const auto fails_once = [] {
    SetExploring(true);
    sim::Choose(2);
    // Twice before the search begins.
    Check(++runs != 4, "it is the fourth");
  };
  runs = 0;
  const Exploration all = ExploreAll({"once", fails_once}, 0, kSteps);
  EXPECT_THAT(all.failure, HasSubstr("it is the fourth"));
  EXPECT_THAT(all.failure, HasSubstr("does not fail when it is replayed"));
  EXPECT_FALSE(all.complete);
  runs = 0;
  const Exploration random = ExploreAtRandom({"once", fails_once}, 1, kSteps);
  EXPECT_THAT(random.failure, HasSubstr("it is the fourth"));
  EXPECT_THAT(random.failure, HasSubstr("does not fail when it is replayed"));

  const auto chooses_of_more = [] {
    SetExploring(true);
    sim::Choose(2 + runs++);
    sim::Choose(2);
  };
  runs = 0;
  EXPECT_THAT(ExploreAll({"more", chooses_of_more}, 0, kSteps).failure,
              HasSubstr("the scenario is not deterministic"));
}

// What is made once and kept is no leak, and the search goes on.
TEST(Scheduler, GoesOnAfterWhatIsKept) {
  static std::unique_ptr<int> kept;
  kept = nullptr;
  const Exploration all = ExploreAll({"kept",
                                      [] {
                                        SetExploring(true);
                                        if (sim::Choose(3) == 1 && !kept) {
                                          kept = std::make_unique<int>(1);
                                        }
                                      }},
                                     0, kSteps);
  EXPECT_EQ(all.failure, "");
  EXPECT_TRUE(all.complete);
  EXPECT_EQ(all.executions, 3);
  EXPECT_EQ(all.kept, 1);
}

TEST(Scheduler, ReplaysNoChoiceThatThereIsNot) {
  const Scenario scenario{"lost", LoseAnUpdate};
  EXPECT_THAT(Replay(scenario, "0:9", false).failure,
              HasSubstr("choice 1 of the replay is 9 of"));
}

// Two threads that do n independent things each: (n + 1)^2 states but no more,
// of all the orders that there are.
TEST(Scheduler, MergesStatesThatAreEqual) {
  const Exploration all = ExploreAll({"independent",
                                      [] {
                                        Atomic<int> a{0}, b{0};
                                        SetExploring(true);
                                        Thread other("other", [&b] {
                                          for (int i = 0; i < 10; ++i)
                                            b.store(i);
                                        });
                                        for (int i = 0; i < 10; ++i) a.store(i);
                                        SetExploring(false);
                                        other.Join();
                                      }},
                                     kAnyPreemptions, kSteps);
  EXPECT_EQ(all.failure, "");
  EXPECT_TRUE(all.complete);
  EXPECT_GT(all.merged, 10);
  EXPECT_LE(all.states, 150);
  EXPECT_LE(all.executions, 150);
}

// Every result that the orders allow is seen, and no other.
TEST(Scheduler, SeesEveryOutcome) {
  static std::set<int> seen;
  seen.clear();
  const Exploration all =
      ExploreAll({"outcomes",
                  [] {
                    Atomic<int> x{1};
                    SetExploring(true);
                    Thread twice("twice", [&x] { x.store(x.load() * 2); });
                    Thread plus("plus", [&x] { x.store(x.load() + 3); });
                    twice.Join();
                    plus.Join();
                    SetExploring(false);
                    const int result = x.load();
                    seen.insert(result);
                  }},
                 kAnyPreemptions, kSteps);
  EXPECT_TRUE(all.complete);
  EXPECT_THAT(seen, ::testing::ElementsAre(2, 4, 5, 8));
}

TEST(Scheduler, TimeStandsStillWhileAThreadCanRunAndThenJumps) {
  const Exploration all = ExploreAll(
      {"clock",
       [] {
         const Nanos began = NowNanos();
         Mutex mu;
         CondVar never;
         {
           MutexLock lock(&mu);
           while (never.WaitUntil(&mu, ToTimePoint(began + 5'000'000))) {
           }
         }
         Check(NowNanos() == began + 5'000'000, "the clock is elsewhere");
       }},
      0, kSteps);
  EXPECT_EQ(all.failure, "");
}

// A wait may end before others have run, if the clock is let go on.
TEST(Scheduler, TimeMayPassWhileOthersCouldRun) {
  const auto body = [] {
    Mutex mu;
    CondVar changed;
    bool set = false;
    SetExploring(true);
    Thread other("other", [&] {
      MutexLock lock(&mu);
      set = true;
      changed.NotifyAll();
    });
    bool in_time = false;
    {
      MutexLock lock(&mu);
      while (!set && changed.WaitUntil(&mu, ToTimePoint(NowNanos() + 1000))) {
      }
      in_time = set;
    }
    SetExploring(false);
    other.Join();
    Check(in_time, "it was late");
  };
  EXPECT_THAT(ExploreAll({"late", body}, 2, kSteps).failure,
              HasSubstr("it was late"));
  EXPECT_EQ(ExploreAll({"late", body}, 0, kSteps).failure, "");
}

TEST(Scheduler, ThreadsThatSpinLetOthersRun) {
  const Exploration all =
      ExploreAll({"spin",
                  [] {
                    Atomic<bool> flag{false};
                    SetExploring(true);
                    Thread other("other", [&flag] { flag.store(true); });
                    while (!flag.load()) Relax();
                    other.Join();
                  }},
                 3, kSteps);
  EXPECT_EQ(all.failure, "");
}

TEST(Scheduler, ChoosesValuesToo) {
  static std::set<int> seen;
  seen.clear();
  const Exploration all = ExploreAll({"values",
                                      [] {
                                        SetExploring(true);
                                        const int value = Choose(3);
                                        seen.insert(value);
                                      }},
                                     0, kSteps);
  EXPECT_TRUE(all.complete);
  EXPECT_EQ(seen.size(), 3);
}

// An invariant is looked at after every step, and knows when it sees half of a
// change.
TEST(Scheduler, LooksAfterEveryStep) {
  const auto body = [](bool right) {
    return [right] {
      struct Pair {
        Mutex mu;
        int a = 0, b = 0;
      } pair;
      SetExploring(true);
      AfterEveryStep([&pair] {
        const Unobserved look;
        { MutexLock lock(&pair.mu); }
        if (look.consistent()) Check(pair.a == pair.b, "they differ");
      });
      Thread other("other", [&pair, right] {
        MutexLock lock(&pair.mu);
        ++pair.a;
        if (!right) {
          pair.mu.Unlock();
          pair.mu.Lock();
        }
        ++pair.b;
      });
      other.Join();
      AfterEveryStep(nullptr);
    };
  };
  EXPECT_EQ(ExploreAll({"whole", body(true)}, 2, kSteps).failure, "");
  EXPECT_THAT(ExploreAll({"half", body(false)}, 2, kSteps).failure,
              HasSubstr("they differ"));
}

}  // namespace
}  // namespace weir::sim
