// The tool itself: it finds what it says it finds, sees every order, merges
// equal states, and replays.
#include "tests/sim/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/clock.h"
#include "kernels/base/holders.h"
#include "kernels/base/mutex.h"
#include "kernels/base/stop_token.h"
#include "kernels/base/thread.h"
#include "tests/sim/explorer.h"
#include "tests/sim/heap.h"
#include "tests/sim/sharing.h"

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

// Between the look and the wait, too, with the lock held: who notifies does not
// take it.
TEST(Scheduler, FindsANotificationBeforeTheWait) {
  const auto body = [] {
    Mutex mu;
    CondVar set;
    Atomic<bool> flag{false};
    SetExploring(true);
    Thread waiter("waiter", [&] {
      MutexLock lock(&mu);
      while (!flag.load()) set.Wait(&mu);
    });
    flag.store(true);
    set.NotifyAll();
    waiter.Join();
  };
  EXPECT_THAT(ExploreAll({"early", body}, kAnyPreemptions, kSteps).failure,
              HasSubstr("a lost wake-up"));
  EXPECT_THAT(ExploreAtRandom({"early", body}, 1, kSteps).failure,
              HasSubstr("a lost wake-up"));
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

// What threads do is decided by what they have seen of objects, or the search
// would take for equal what is not.
TEST(Scheduler, ReportsWhatIsDecidedByNoObject) {
  const Exploration all =
      ExploreAll({"plain",
                  [] {
                    Atomic<int> a{0}, b{0};
                    bool plain = false;
                    SetExploring(true);
                    Thread other("other", [&] {
                      b.store(1);
                      plain = true;
                      a.store(1);
                    });
                    Thread reader("reader", [&] {
                      a.store(2);
                      if (plain) a.store(3);
                      b.load();
                    });
                    other.Join();
                    reader.Join();
                    SetExploring(false);
                  }},
                 kAnyPreemptions, kSteps, /*reduces=*/false);
  EXPECT_THAT(all.failure, HasSubstr("decided by something else"));
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
  EXPECT_EQ(all.kept, 1);
}

TEST(Scheduler, ReplaysNoChoiceThatThereIsNot) {
  const Scenario scenario{"lost", LoseAnUpdate};
  const Exploration found = ExploreAll(scenario, 1, kSteps);
  // Its first choice, but another one.
  std::string choices = found.replay.substr(std::string("--replay=").size());
  choices = choices.substr(0, choices.find(':')) + ":9";
  EXPECT_THAT(Replay(scenario, choices, false).failure,
              HasSubstr("choice 1 of the replay is 9 of"));
}

// Two threads that each do things of their own, and look at the other's.
Scenario Independent(int things) {
  return {"independent", [things] {
            Atomic<int> a{0}, b{0};
            SetExploring(true);
            Thread other("other", [&] {
              for (int i = 0; i < things; ++i) b.store(i);
              a.load();
            });
            for (int i = 0; i < things; ++i) a.store(i);
            b.load();
            other.Join();
            SetExploring(false);
          }};
}

// (n + 1)^2 states but no more, of all the orders that there are.
TEST(Scheduler, MergesStatesThatAreEqual) {
  const Exploration all =
      ExploreAll(Independent(10), kAnyPreemptions, kSteps, /*reduces=*/false);
  EXPECT_EQ(all.failure, "");
  EXPECT_TRUE(all.complete);
  EXPECT_GT(all.merged, 10);
  EXPECT_LE(all.states, 300);
  EXPECT_LE(all.executions, 100);
}

// Of deeds that are not about the same thing one order is enough. Here the
// first two threads meet, the others are alone, with what is made in the same
// place.
TEST(Scheduler, LooksAtNoOrderThatDiffersInNothing) {
  const Scenario scenario{"apart", [] {
                            std::vector<std::unique_ptr<Atomic<int>>> own;
                            for (int i = 0; i < 3; ++i)
                              own.push_back(std::make_unique<Atomic<int>>());
                            SetExploring(true);
                            std::vector<Thread> threads;
                            for (size_t i = 0; i < 4; ++i) {
                              threads.emplace_back(
                                  "thread", [mine = own[i / 2 + i / 3].get()] {
                                    for (int k = 0; k < 3; ++k) mine->store(k);
                                  });
                            }
                            for (Thread& thread : threads) thread.Join();
                            SetExploring(false);
                          }};
  const Exploration all =
      ExploreAll(scenario, kAnyPreemptions, kSteps, /*reduces=*/false);
  const Exploration reduced = ExploreAll(scenario, kAnyPreemptions, kSteps);
  EXPECT_TRUE(all.complete);
  EXPECT_TRUE(reduced.complete);
  EXPECT_LE(reduced.states * 5, all.states);
}

// Of what nobody else comes to, none.
TEST(Scheduler, SwitchesOnlyAtWhatIsShared) {
  const Exploration all =
      ExploreAll({"apart",
                  [] {
                    SetExploring(true);
                    const auto work = [] {
                      Atomic<int> own{0};
                      Mutex mu;
                      for (int i = 0; i < 10; ++i) {
                        MutexLock lock(&mu);
                        own.store(i);
                      }
                    };
                    Thread first("first", work);
                    Thread second("second", work);
                    first.Join();
                    second.Join();
                    SetExploring(false);
                  }},
                 kAnyPreemptions, kSteps, /*reduces=*/false);
  EXPECT_TRUE(all.complete);
  EXPECT_EQ(all.shared, 0);
  EXPECT_LE(all.states, 12);
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

// References are counted together: each thread may be the last one, and who
// looks whether there are others sees both.
TEST(Scheduler, SeesWhoLetsGoLast) {
  static std::set<std::string> seen;
  seen.clear();
  const auto body = [] {
    std::string last;
    bool held = false;
    const auto tell = [&last](int* object) {
      last = CurrentThread() == 2 ? "first" : "second";
      delete object;
    };
    std::shared_ptr<int> one(new int(0), tell);
    std::shared_ptr<int> two = one;
    SetExploring(true);
    Thread first("first", [&one, &held] {
      held = HeldByOthers(one);
      one = nullptr;
    });
    Thread second("second", [&two] { two = nullptr; });
    first.Join();
    second.Join();
    SetExploring(false);
    const OutsideHeap mine;
    seen.insert(last + (held ? " held" : ""));
  };
  for (const bool reduces : {false, true}) {
    seen.clear();
    const Exploration all =
        ExploreAll({"last", body}, kAnyPreemptions, kSteps, reduces);
    EXPECT_EQ(all.failure, "");
    EXPECT_TRUE(all.complete);
    EXPECT_THAT(seen,
                ::testing::ElementsAre("first", "first held", "second held"));
  }
}

// Somebody is asked to stop before he looks, while he registers what is to be
// done then, while it is registered, or later; it is done once at most, and
// whoever takes it back waits until it is done.
TEST(Scheduler, SeesWhenSomebodyIsAskedToStop) {
  static std::set<std::string> seen;
  const auto body = [] {
    StopSource source;
    std::string told;
    SetExploring(true);
    Thread asks("asks", [&source] { source.request_stop(); });
    Thread works("works", [&told, token = source.get_token()] {
      const uint64_t here = CurrentThread();
      std::string ran;
      const bool early = token.stop_requested();
      {
        const StopCallback callback(token, [&ran, here] {
          ran += CurrentThread() == here ? "itself" : "the other";
        });
      }
      const bool late = token.stop_requested();
      told = early ? "at first" : late ? "later" : "not";
      if (!ran.empty()) told += ", by " + ran;
    });
    asks.Join();
    works.Join();
    SetExploring(false);
    const OutsideHeap mine;
    seen.insert(told);
  };
  for (const bool reduces : {false, true}) {
    seen.clear();
    const Exploration all =
        ExploreAll({"stop", body}, kAnyPreemptions, kSteps, reduces);
    EXPECT_EQ(all.failure, "");
    EXPECT_TRUE(all.complete);
    EXPECT_THAT(seen, ::testing::ElementsAre("at first, by itself", "later",
                                             "later, by itself",
                                             "later, by the other", "not"));
  }
}

// What goes on in the order of these threads, whoever of them can; and what the
// last block of one of them is known by.
class InOrder final : public Chooser {
 public:
  InOrder(std::vector<int> order, int of) : order_(std::move(order)), of_(of) {}

  size_t Choose(const ChoicePoint& point) override {
    for (const int thread : order_) {
      for (size_t i = 0; i < point.options.size(); ++i) {
        if (point.options[i] != thread) continue;
        if (thread == of_) block_ = point.successors[i].block;
        return i;
      }
    }
    return 0;
  }
  uint64_t block() const { return block_; }

 private:
  const std::vector<int> order_;
  const int of_;
  uint64_t block_ = 0;
};

// Whatever comes before what a thread does, in the order of causes, is part of
// what it is known by: what else it comes to, which is not shared, may be so
// because of that.
TEST(Scheduler, KnowsABlockByAllThatComesBefore) {
  struct Case {
    std::string what;
    std::vector<int> order, other;
    std::function<void()> body;
  };
  // The first and the third thread meet; the second comes after what they do.
  const auto meet = [](Atomic<int>& b, bool writes) {
    writes ? b.store(1) : static_cast<void>(b.load());
  };
  const std::vector<Case> cases = {
      {"a read before a write",
       {1, 2},
       {2, 1},
       [] {
         Atomic<int> a{0};
         SetExploring(true);
         Thread reader("reader", [&] { a.load(); });
         Thread writer("writer", [&] { a.store(1); });
         reader.Join();
         writer.Join();
         SetExploring(false);
       }},
      {"time that came when nobody could go on",
       {2, 1, 3},
       {2, 3, 1},
       [meet] {
         Atomic<int> b{0};
         SetExploring(true);
         Thread first("first", [&] { meet(b, true); });
         Thread second("second", [] { AwaitChange(100); });
         Thread third("third", [&] { meet(b, false); });
         first.Join();
         second.Join();
         third.Join();
         SetExploring(false);
       }},
      {"who notifies",
       {2, 1, 3},
       {2, 3, 1},
       [meet] {
         Atomic<int> b{0};
         Mutex mu;
         CondVar changed;
         SetExploring(true);
         Thread first("first", [&] {
           meet(b, false);
           changed.NotifyOne();
         });
         Thread second("second", [&] {
           MutexLock lock(&mu);
           changed.WaitUntil(&mu, ToTimePoint(NowNanos() + 1000));
         });
         Thread third("third", [&] { meet(b, true); });
         first.Join();
         second.Join();
         third.Join();
         SetExploring(false);
       }},
      {"who else has let go",
       {1, 3, 2},
       {3, 1, 2},
       [meet] {
         Atomic<int> b{0};
         auto one = std::make_shared<int>(0);
         auto two = one;
         SetExploring(true);
         Thread first("first", [&] {
           meet(b, false);
           one = nullptr;
         });
         Thread second("second", [&] { two = nullptr; });
         Thread third("third", [&] { meet(b, true); });
         first.Join();
         second.Join();
         third.Join();
         SetExploring(false);
       }},
  };
  for (const Case& one : cases) {
    Scheduler scheduler;
    Sharing sharing;
    // What is shared is known after some runs.
    for (const auto& order : {one.order, one.other, one.order, one.other}) {
      InOrder in_order(order, 2);
      scheduler.Run(one.body, in_order, {}, &sharing, Places::kShared);
    }
    InOrder first(one.order, 2);
    EXPECT_TRUE(
        scheduler.Run(one.body, first, {}, &sharing, Places::kShared).ok());
    EXPECT_FALSE(sharing.learned());
    InOrder second(one.other, 2);
    EXPECT_TRUE(
        scheduler.Run(one.body, second, {}, &sharing, Places::kShared).ok());
    EXPECT_NE(first.block(), 0) << one.what;
    EXPECT_NE(first.block(), second.block()) << one.what;
  }
}

// A thread is the same in every execution, whichever others were started before
// it.
TEST(Scheduler, NamesAThreadByWhoStartsIt) {
  class Names final : public Chooser {
   public:
    explicit Names(bool other_first) : other_first_(other_first) {}
    size_t Choose(const ChoicePoint& point) override {
      names_.insert(point.running);
      if (!other_first_ || point.continues || point.options.size() < 2) {
        return 0;
      }
      return point.runnable - 1;
    }
    const std::set<uint64_t>& names() const { return names_; }

   private:
    const bool other_first_;
    std::set<uint64_t> names_;
  };
  const auto body = [] {
    SetExploring(true);
    const auto start = [] {
      Thread child("child", [] {
        Atomic<int> own{0};
        own.store(1);
      });
      child.Join();
    };
    Thread one("one", start);
    Thread two("two", start);
    one.Join();
    two.Join();
    SetExploring(false);
  };
  Scheduler scheduler;
  Names first(false);
  Names second(true);
  EXPECT_TRUE(scheduler.Run(body, first).ok());
  EXPECT_TRUE(scheduler.Run(body, second).ok());
  EXPECT_EQ(first.names().size(), 5);
  EXPECT_EQ(first.names(), second.names());
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

// While nothing changes that it has looked at it does not look again.
TEST(Scheduler, ThreadsThatSpinAwaitAChange) {
  const Exploration all = ExploreAll({"spin",
                                      [] {
                                        Atomic<bool> flag{false};
                                        Atomic<int> other_steps{0};
                                        SetExploring(true);
                                        Thread other("other", [&] {
                                          for (int i = 0; i < 3; ++i) {
                                            ++other_steps;
                                          }
                                          flag.store(true);
                                        });
                                        int looks = 0;
                                        while (!flag.load()) {
                                          ++looks;
                                          Yield();
                                        }
                                        Check(looks <= 1, "it spins");
                                        other.Join();
                                        SetExploring(false);
                                      }},
                                     kAnyPreemptions, kSteps);
  EXPECT_EQ(all.failure, "");
  EXPECT_TRUE(all.complete);
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
