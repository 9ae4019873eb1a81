#include "kernels/graph/program_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/reclaimer.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/graph/queue_callers.h"

namespace weir {
namespace {

using ::weir::testing::Answers;
using ::weir::testing::Behind;
using ::weir::testing::Floats;
using ::weir::testing::Gate;
using ::weir::testing::NegGraph;

using Programs = Answers<ProgramCache::ProgramOr>;

class ProgramCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<ProgramCache> Make(
      ProgramCacheOptions options = {},
      std::shared_ptr<ReclaimQueue> reclaim = nullptr) {
    return std::make_unique<ProgramCache>(device_.get(), &operators_.registry,
                                          &timers_, options,
                                          std::move(reclaim));
  }

  // Compiles "key" and waits for it.
  static ProgramCache::ProgramOr Compile(
      ProgramCache& cache, std::string key,
      ProgramCache::GraphFactory factory = NegGraph) {
    Programs answers;
    cache.GetOrCompile(std::move(key), std::move(factory), kNoDeadline,
                       answers.Sink());
    return answers.Next();
  }

  static std::vector<HostTensor> Rows(int64_t rows) {
    return {{DType::kFloat, {rows}, nullptr}};
  }

  // Two of Compile's programs, with keys of one character, have so many bytes
  // or less until one has a plan for these inputs.
  size_t RoomForTwo(absl::Span<const HostTensor> inputs) {
    const auto program = *Compile(*Make(), "k");
    const size_t without_plan = 1 + program->held_bytes();
    EXPECT_TRUE(program->MakePlan(inputs).ok());
    const size_t with_plan = 1 + program->held_bytes();
    EXPECT_GT(with_plan, without_plan);
    return without_plan + with_plan - 1;
  }

  testing::TestOperators operators_;
  std::unique_ptr<Device> device_ = MakeCpuDevice({});
  TimerQueue timers_;
};

TEST_F(ProgramCacheTest, CompilesOnceAndRemembers) {
  const auto cache = Make();
  EXPECT_EQ(cache->Find("k"), nullptr);
  const auto program = Compile(*cache, "k");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(cache->Find("k"), *program);
  Programs answers;
  cache->GetOrCompile(
      "k", []() -> absl::StatusOr<Graph> { return absl::InternalError("no"); },
      kNoDeadline, answers.Sink());
  ASSERT_EQ(answers.size(), 1u);  // inline
  EXPECT_EQ(*answers.Next(), *program);
  const ProgramCacheStats stats = cache->stats();
  EXPECT_EQ(stats.programs, 1u);
  EXPECT_EQ(stats.hits, 2u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.bytes, 1 + (*program)->held_bytes());
  // Its two values and one node are more than its constant of 100 bytes.
  EXPECT_GT(stats.bytes, 1024u);
}

// A caller looks its key up, and for a compilation to join, while one ends.
TEST_F(ProgramCacheTest, WhoeverComesAsACompilationEndsFindsItsProgram) {
  constexpr int kRounds = 300;
  ProgramCacheOptions options;
  options.max_programs = kRounds;
  const auto cache = Make(options);
  constexpr int kCallers = 3;
  constexpr int kCallsEach = 1000;  // of a round, at most
  for (int round = 0; round < kRounds; ++round) {
    const std::string key = absl::StrCat("k", round);
    std::atomic<int> made{0};
    std::atomic<int> told{0};
    const auto factory = [&] {
      ++made;
      return NegGraph();
    };
    std::vector<std::thread> callers;
    std::atomic<int> calls{0};
    for (int i = 0; i < kCallers; ++i) {
      callers.emplace_back([&] {
        for (int n = 0; n < kCallsEach && told == 0; ++n) {
          ++calls;
          cache->GetOrCompile(key, factory, kNoDeadline,
                              [&](const ProgramCache::ProgramOr& program) {
                                EXPECT_TRUE(program.ok()) << program.status();
                                ++told;
                              });
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    ASSERT_TRUE(testing::Eventually([&] { return told == calls; }));
    ASSERT_EQ(made, 1) << "in round " << round;
  }
}

TEST_F(ProgramCacheTest, DoesNotRememberFailures) {
  const auto cache = Make();
  const auto fail = []() -> absl::StatusOr<Graph> {
    return absl::InvalidArgumentError("garbage");
  };
  EXPECT_EQ(Compile(*cache, "k", fail).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(cache->stats().failed, 1u);
  EXPECT_TRUE(Compile(*cache, "k").ok());
}

// As the slices of a message.
TEST_F(ProgramCacheTest, FindsAKeyInPieces) {
  const auto cache = Make();
  for (size_t size : {size_t{1}, size_t{63}, size_t{64}, size_t{65},
                      size_t{5000}, size_t{100'000}}) {
    std::string key(size, '\0');
    for (size_t i = 0; i < size; ++i) key[i] = static_cast<char>(i * i >> 3);
    const auto program = Compile(*cache, key);
    ASSERT_TRUE(program.ok()) << program.status();
    const std::string_view whole = key;
    for (size_t cut : {size_t{0}, size / 3, size - 1, size}) {
      const std::string_view pieces[] = {whole.substr(0, cut), "",
                                         whole.substr(cut)};
      EXPECT_EQ(cache->Find(pieces), *program) << size << " cut at " << cut;
    }
    EXPECT_EQ(cache->Find(whole.substr(1)), nullptr);
  }
}

// A key may be large: what is known of it is not found out again.
TEST_F(ProgramCacheTest, TakesTheHashThatItIsGiven) {
  const auto cache = Make();
  const std::string_view key = "k";
  const ProgramCache::KeyHash hash = ProgramCache::Hash({&key, 1});
  Programs answers;
  cache->GetOrCompile(std::make_shared<const std::string>(key), hash + 1,
                      NegGraph, kNoDeadline, answers.Sink());
  const auto program = answers.Next();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(cache->Find(key), nullptr);
  EXPECT_EQ(cache->Find({&key, 1}, hash + 1), *program);
}

// What a hash has not seen of a large key is compared.
TEST_F(ProgramCacheTest, EveryByteOfAKeyCounts) {
  const auto cache = Make();
  const std::string key(20'000, 'k');
  const auto program = Compile(*cache, key);
  ASSERT_TRUE(program.ok());
  for (size_t at = 0; at < key.size(); at += 7) {
    std::string other = key;
    other[at] = 'x';
    ASSERT_EQ(cache->Find(other), nullptr) << at;
  }
  std::string other = key;
  other[100] = 'x';
  const auto second = Compile(*cache, other);
  ASSERT_TRUE(second.ok());
  EXPECT_NE(*second, *program);
  EXPECT_EQ(cache->Find(key), *program);
  EXPECT_EQ(cache->Find(other), *second);
}

TEST_F(ProgramCacheTest, KeepsOneCopyOfAKey) {
  const auto cache = Make();
  const auto key = std::make_shared<const std::string>("k");
  Programs answers;
  cache->GetOrCompile(key, NegGraph, kNoDeadline, answers.Sink());
  ASSERT_TRUE(answers.Next().ok());
  EXPECT_GT(key.use_count(), 1);
}

TEST_F(ProgramCacheTest, LeastRecentlyUsedGoesFirst) {
  const auto cache = Make({.max_programs = 2});
  ASSERT_TRUE(Compile(*cache, "a").ok());
  ASSERT_TRUE(Compile(*cache, "b").ok());
  EXPECT_NE(cache->Find("a"), nullptr);
  ASSERT_TRUE(Compile(*cache, "c").ok());
  EXPECT_NE(cache->Find("a"), nullptr);
  EXPECT_EQ(cache->Find("b"), nullptr);
  EXPECT_NE(cache->Find("c"), nullptr);
  EXPECT_EQ(cache->stats().evicted, 1u);
  EXPECT_EQ(cache->stats().programs, 2u);
}

TEST_F(ProgramCacheTest, BoundsBytes) {
  const size_t each = 1 + (*Compile(*Make(), "a"))->held_bytes();
  const auto cache = Make({.max_bytes = 5 * each / 2});
  ASSERT_TRUE(Compile(*cache, "a").ok());
  ASSERT_TRUE(Compile(*cache, "b").ok());
  ASSERT_TRUE(Compile(*cache, "c").ok());
  EXPECT_EQ(cache->stats().programs, 2u);
  EXPECT_EQ(cache->stats().bytes, 2 * each);
  // One that is larger than the whole cache runs, but is not kept.
  EXPECT_TRUE(Compile(*cache, std::string(3 * each, 'x')).ok());
  EXPECT_EQ(cache->stats().programs, 2u);
}

TEST_F(ProgramCacheTest, BoundsBytesWhenPlansAdd) {
  const std::vector<HostTensor> inputs = Rows(2);
  const size_t bound = RoomForTwo(inputs);
  const auto cache = Make({.max_bytes = bound});
  ASSERT_TRUE(Compile(*cache, "a").ok());
  const auto program = *Compile(*cache, "b");
  EXPECT_EQ(cache->stats().programs, 2u);
  Answers<ProgramCache::PlanOr> answers;
  cache->MakePlan(program, inputs, kNoDeadline, answers.Sink());
  ASSERT_TRUE(answers.Next().ok());
  EXPECT_EQ(cache->stats().programs, 1u);
  EXPECT_EQ(cache->stats().evicted, 1u);
  EXPECT_EQ(cache->Find("a"), nullptr);
  EXPECT_EQ(cache->Find("b"), program);
  EXPECT_EQ(cache->stats().bytes, 1 + program->held_bytes());
}

TEST_F(ProgramCacheTest, CountsWhatItLetGoAsLongAsSomebodyHoldsIt) {
  const auto x = Floats({2}, {1, 2});
  const std::vector<HostTensor> inputs = {x->tensor};
  const auto cache = Make({.max_programs = 1});
  auto program = *Compile(*cache, "a");
  Answers<ProgramCache::PlanOr> answers;
  cache->MakePlan(program, inputs, kNoDeadline, answers.Sink());
  auto plan = *answers.Next();
  const size_t held = program->held_bytes();
  ASSERT_TRUE(Compile(*cache, "b").ok());
  EXPECT_EQ(cache->Find("a"), nullptr);
  const size_t cached = 1 + cache->Find("b")->held_bytes();
  EXPECT_EQ(cache->stats().bytes, cached + held);
  // The plan holds the constants and kernels.
  program = nullptr;
  EXPECT_GT(cache->stats().bytes, cached);
  plan = nullptr;
  EXPECT_EQ(cache->stats().bytes, cached);
}

TEST_F(ProgramCacheTest, CompilesNothingWhileTooMuchIsInUse) {
  const size_t each = 1 + (*Compile(*Make(), "a"))->held_bytes();
  const auto cache = Make({.max_bytes = 5 * each / 2});
  std::vector<std::shared_ptr<const Program>> held;
  for (const char* key : {"a", "b", "c"}) {
    const auto program = Compile(*cache, key);
    ASSERT_TRUE(program.ok()) << program.status();
    held.push_back(*program);
  }
  // There was no room for the third, and to let go of the others makes none.
  EXPECT_EQ(cache->stats().programs, 2u);
  EXPECT_EQ(cache->stats().evicted, 0u);
  const absl::Status status = Compile(*cache, "d").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "PROGRAM_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(status).has_value());
  held.clear();
  EXPECT_EQ(cache->stats().bytes, 2 * each);
  EXPECT_TRUE(Compile(*cache, "d").ok());
  EXPECT_NE(cache->Find("d"), nullptr);
}

// As works hold them that wait for a lane.
class PlansInUse : public ProgramCacheTest {
 protected:
  static constexpr int64_t kMany = 100;  // more than a program keeps

  void SetUp() override {
    program_ = *Compile(*Make(), "k");
    own_ = program_->held_bytes();
    each_ = (*program_->MakePlan(Rows(1)))->held_bytes();
    max_bytes_ = own_ + 20 * each_;
    cache_ = Make({.max_bytes = max_bytes_});
    program_ = *Compile(*cache_, "k");
  }

  ProgramCache::PlanOr MakePlan(int64_t rows) {
    Answers<ProgramCache::PlanOr> answers;
    cache_->MakePlan(program_, Rows(rows), kNoDeadline, answers.Sink());
    return answers.Next();
  }
  // Plans for so many rows and more, until one is refused.
  absl::Status Fill(int64_t rows) {
    for (int64_t i = 0; i < kMany; ++i) {
      ProgramCache::PlanOr plan = MakePlan(rows + i);
      if (!plan.ok()) return plan.status();
      held_.push_back(*std::move(plan));
    }
    return absl::OkStatus();
  }

  std::unique_ptr<ProgramCache> cache_;
  std::shared_ptr<const Program> program_;
  size_t own_ = 0;   // of the program, without plans
  size_t each_ = 0;  // of a plan
  size_t max_bytes_ = 0;
  std::vector<std::shared_ptr<const Plan>> held_;
};

TEST_F(PlansInUse, LeaveNoRoomForMore) {
  const absl::Status status = Fill(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "PROGRAM_MEMORY_EXHAUSTED");
  EXPECT_TRUE(RetryAfter(status).has_value());
  EXPECT_GE(held_.size(), 10u);
  // Beside the program's own, and what was being made.
  EXPECT_LE(cache_->stats().bytes, max_bytes_ + own_ + 2 * each_);
  // What is there is found all the same.
  EXPECT_EQ(MakePlan(1).value_or(nullptr), held_[0]);
  EXPECT_FALSE(MakePlan(kMany + 1).ok());
  held_.clear();
  EXPECT_TRUE(MakePlan(kMany + 1).ok());
  EXPECT_LE(cache_->stats().bytes, max_bytes_);
}

TEST_F(PlansInUse, AreAllThatCounts) {
  for (int64_t rows = 1; rows <= kMany; ++rows) {
    const ProgramCache::PlanOr plan = MakePlan(rows);
    ASSERT_TRUE(plan.ok()) << plan.status();
  }
  // The program is in use, and keeps plans that nobody uses.
  EXPECT_LE(cache_->stats().bytes, max_bytes_);
  EXPECT_TRUE(Compile(*cache_, "other").ok());
  EXPECT_NE(cache_->Find("other"), nullptr);
  EXPECT_EQ(cache_->Find("k"), program_);
  EXPECT_LE(cache_->stats().bytes, max_bytes_);
}

TEST_F(PlansInUse, HoldUpThoseOfTheirRoomOnly) {
  const auto elsewhere = Make();
  const auto other = *Compile(*elsewhere, "k");
  ASSERT_FALSE(Fill(1).ok());
  Answers<ProgramCache::PlanOr> answers;
  cache_->MakePlan(other, Rows(1), kNoDeadline, answers.Sink());
  EXPECT_TRUE(answers.Next().ok());
}

// It was let in before, and to refuse its plans would not make it smaller.
TEST_F(PlansInUse, AreMadeOfAProgramThatAloneIsTooLarge) {
  cache_ = Make({.max_bytes = own_ / 2});
  program_ = *Compile(*cache_, "k");
  EXPECT_EQ(cache_->stats().programs, 0u);
  const ProgramCache::PlanOr plan = MakePlan(1);
  EXPECT_TRUE(plan.ok()) << plan.status();
}

// To evict it would free nothing, and make whoever uses it compile it again.
TEST_F(ProgramCacheTest, WhatIsInUseStaysCached) {
  const size_t each = 1 + (*Compile(*Make(), "a"))->held_bytes();
  const auto cache = Make({.max_bytes = 5 * each / 2});
  const auto a = *Compile(*cache, "a");
  ASSERT_TRUE(Compile(*cache, "b").ok());
  // The older one is in use.
  const auto c = *Compile(*cache, "c");
  EXPECT_EQ(cache->Find("a"), a);
  EXPECT_EQ(cache->Find("b"), nullptr);
  EXPECT_EQ(cache->Find("c"), c);
  EXPECT_EQ(cache->stats().evicted, 1u);
}

// A plan keeps kernels and constants, though nobody holds the program.
TEST_F(ProgramCacheTest, WhatAPlanInUseIsOfStaysCached) {
  const auto x = Floats({2}, {1, 2});
  const std::vector<HostTensor> inputs = {x->tensor};
  const auto same = *Compile(*Make(), "a");
  const size_t each = 1 + same->held_bytes();
  ASSERT_TRUE(same->MakePlan(inputs).ok());
  const size_t with_plan = 1 + same->held_bytes();
  const auto cache = Make({.max_bytes = with_plan + 3 * each / 2});
  auto plan = *(*Compile(*cache, "a"))->MakePlan(inputs);
  const auto b = *Compile(*cache, "b");
  ASSERT_TRUE(Compile(*cache, "c").ok());
  EXPECT_NE(cache->Find("a"), nullptr);
  EXPECT_EQ(cache->Find("b"), b);
  EXPECT_EQ(cache->Find("c"), nullptr);
  plan = nullptr;
  ASSERT_TRUE(Compile(*cache, "c").ok());
  EXPECT_EQ(cache->Find("a"), nullptr);
  EXPECT_EQ(cache->Find("b"), b);
  EXPECT_NE(cache->Find("c"), nullptr);
}

// A place is free at once, whoever still uses what had it.
TEST_F(ProgramCacheTest, PlacesAreMadeOfIdleProgramsFirst) {
  const auto cache = Make({.max_programs = 2});
  const auto a = *Compile(*cache, "a");
  ASSERT_TRUE(Compile(*cache, "b").ok());
  const auto c = *Compile(*cache, "c");
  EXPECT_EQ(cache->Find("a"), a);
  EXPECT_EQ(cache->Find("b"), nullptr);
  ASSERT_TRUE(Compile(*cache, "d").ok());
  EXPECT_EQ(cache->stats().programs, 2u);
  EXPECT_NE(cache->Find("d"), nullptr);
}

// A constant that tells where its owner's memory was freed, once `open` let it.
std::shared_ptr<const Constant> Traced(const Gate& open,
                                       Answers<std::thread::id>* freed_on) {
  auto constant = std::make_shared<Constant>();
  auto* values = new (std::align_val_t{64}) float[16]{};
  constant->tensor = {DType::kFloat, {16}, values};
  constant->owner =
      std::shared_ptr<const void>(values, [open, freed_on](const float* held) {
        open.Pass();
        operator delete[](const_cast<float*>(held), std::align_val_t{64});
        freed_on->Sink()(std::this_thread::get_id());
      });
  return constant;
}

TEST_F(ProgramCacheTest, WhoeverDropsAProgramLastDoesNotWait) {
  Reclaimer reclaimer;
  const auto cache = Make({.max_programs = 1}, reclaimer.queue());
  Gate open;
  Answers<std::thread::id> freed_on;
  auto program = *Compile(*cache, "a", [&]() -> absl::StatusOr<Graph> {
    absl::StatusOr<Graph> graph = NegGraph();
    graph->constants["c"] = Traced(open, &freed_on);
    return graph;
  });
  const auto x = Floats({2}, {1, 2});
  const std::vector<HostTensor> inputs = {x->tensor};
  auto plan = *program->MakePlan(inputs);
  ASSERT_TRUE(Compile(*cache, "b").ok());
  ASSERT_EQ(cache->Find("a"), nullptr);
  program = nullptr;
  EXPECT_EQ(freed_on.size(), 0u);
  plan = nullptr;  // to free it takes until the gate is open
  EXPECT_EQ(freed_on.size(), 0u);
  open.Open();
  EXPECT_NE(freed_on.Next(), std::this_thread::get_id());
}

// A reclaimer that stands still until it is let go.
class Standstill {
 public:
  Standstill() { Drop(); }
  ~Standstill() { gate_.Open(); }

  const std::shared_ptr<ReclaimQueue>& queue() { return reclaimer_.queue(); }
  // So many wait for their end that nothing more is made.
  void Fill() {
    for (size_t i = 0; i <= ReclaimQueue::kMaxWaiting; ++i) Drop();
  }
  void LetGo() {
    gate_.Open();
    queue()->Flush();
  }

 private:
  struct Object {
    ~Object() { gate.Pass(); }
    const Gate gate;
  };
  void Drop() {
    ReclaimQueue::Share(std::unique_ptr<Object>(new Object{gate_}), queue());
  }

  Gate gate_;
  Reclaimer reclaimer_;
};

// As a program with text is, beside a GPU: what compiled it is not where its
// plans are made.
TEST_F(ProgramCacheTest, APlanFindsRoomWhereItsProgramLies) {
  const std::vector<HostTensor> inputs = Rows(2);
  const size_t bound = RoomForTwo(inputs);
  const auto home = Make({.max_bytes = bound});
  const auto maker = Make();
  ASSERT_TRUE(Compile(*home, "a").ok());
  const auto program = *Compile(*home, "b");
  ASSERT_TRUE(Compile(*maker, "c").ok());
  Answers<ProgramCache::PlanOr> answers;
  maker->MakePlan(program, inputs, kNoDeadline, answers.Sink());
  ASSERT_TRUE(answers.Next().ok());
  EXPECT_LE(home->stats().bytes, bound);
  EXPECT_EQ(home->Find("a"), nullptr);
  EXPECT_EQ(home->Find("b"), program);
  EXPECT_EQ(home->stats().evicted, 1u);
  EXPECT_EQ(maker->stats().evicted, 0u);
}

// The end of a program may wait for a device.
TEST_F(ProgramCacheTest, APlanIsToldBeforeOthersHaveGoneForIt) {
  const std::vector<HostTensor> inputs = Rows(2);
  const size_t bound = RoomForTwo(inputs);
  Standstill standstill;
  const auto cache = Make({.max_bytes = bound}, standstill.queue());
  ASSERT_TRUE(Compile(*cache, "a").ok());
  const auto program = *Compile(*cache, "b");
  Answers<ProgramCache::PlanOr> answers;
  cache->MakePlan(program, inputs, NowNanos() + 20'000'000'000, answers.Sink());
  const auto plan = answers.Next();
  EXPECT_TRUE(plan.ok()) << plan.status();
  standstill.LetGo();
  EXPECT_EQ(cache->Find("a"), nullptr);
  EXPECT_EQ(cache->Find("b"), program);
  EXPECT_LE(cache->stats().bytes, bound);
}

// Nor is anybody held up who stops a cache, whatever its threads wait for.
TEST_F(ProgramCacheTest, WaitsForRoomEndAtStop) {
  Standstill standstill;
  const auto home = Make({}, standstill.queue());
  const auto program = *Compile(*home, "k");
  const auto maker = Make();
  standstill.Fill();
  Answers<ProgramCache::PlanOr> plans, others;
  Programs programs;
  const std::vector<HostTensor> inputs = Rows(2);
  home->GetOrCompile("other", NegGraph, kNoDeadline, programs.Sink());
  home->MakePlan(program, inputs, kNoDeadline, plans.Sink());
  // It waits for the end of what its program lies beside.
  maker->MakePlan(program, inputs, kNoDeadline, others.Sink());
  maker->Stop();
  EXPECT_EQ(others.Next().status().code(), absl::StatusCode::kCancelled);
  home->Stop();
  EXPECT_EQ(plans.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(programs.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(program->FindPlan(inputs), nullptr);
}

TEST_F(ProgramCacheTest, PlansDoNotWaitBehindCompilations) {
  const auto cache = Make({.plan_threads = 1});
  const auto program = *Compile(*cache, "k");
  Gate open;
  Programs compiled;
  cache->GetOrCompile("running", Behind(open), kNoDeadline, compiled.Sink());
  open.AwaitArrival();
  Answers<ProgramCache::PlanOr> answers;
  cache->MakePlan(program, Rows(2), kNoDeadline, answers.Sink());
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(compiled.size(), 0u);
  open.Open();
  EXPECT_TRUE(compiled.Next().ok());
}

// Each in the queue that it waits in.
TEST_F(ProgramCacheTest, CancelsTheWaitThatIsMeant) {
  const auto cache = Make({.plan_threads = 1});
  const auto program = *Compile(*cache, "k");
  Gate open;
  Programs compiled, cancelled_programs;
  Answers<ProgramCache::PlanOr> plans, cancelled_plans;
  cache->GetOrCompile("running", Behind(open), kNoDeadline, compiled.Sink());
  cache->MakePlan(program, Rows(1), kNoDeadline,
                  [&, sink = plans.Sink()](ProgramCache::PlanOr plan) mutable {
                    open.Pass();
                    sink(std::move(plan));
                  });
  open.AwaitArrival(2);
  const auto first = cache->GetOrCompile("first", NegGraph, kNoDeadline,
                                         cancelled_programs.Sink());
  const auto second =
      cache->MakePlan(program, Rows(2), kNoDeadline, cancelled_plans.Sink());
  cache->GetOrCompile("other", NegGraph, kNoDeadline, compiled.Sink());
  cache->MakePlan(program, Rows(3), kNoDeadline, plans.Sink());
  cache->Cancel(first);
  EXPECT_TRUE(absl::IsCancelled(cancelled_programs.Next().status()));
  EXPECT_EQ(cancelled_plans.size(), 0u);
  cache->Cancel(second);
  EXPECT_TRUE(absl::IsCancelled(cancelled_plans.Next().status()));
  cache->Cancel(0);
  open.Open();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(compiled.Next().ok());
    EXPECT_TRUE(plans.Next().ok());
  }
}

TEST_F(ProgramCacheTest, StopAnswersEveryone) {
  const auto cache = Make();
  ASSERT_TRUE(Compile(*cache, "k").ok());
  Gate gate;
  Programs running;
  Programs queued;
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    gate.Pass();
    return NegGraph();
  };
  cache->GetOrCompile("running", factory, kNoDeadline, running.Sink());
  gate.AwaitArrival();
  cache->GetOrCompile("queued", factory, kNoDeadline, queued.Sink());
  std::thread stop([&] { cache->Stop(); });
  EXPECT_EQ(queued.Next().status().code(), absl::StatusCode::kCancelled);
  gate.Open();
  stop.join();
  // It ends at its next step.
  EXPECT_EQ(running.Next().status().code(), absl::StatusCode::kCancelled);
  cache->GetOrCompile("late", factory, kNoDeadline, queued.Sink());
  EXPECT_EQ(queued.Next().status().code(), absl::StatusCode::kCancelled);
  Answers<ProgramCache::PlanOr> plans;
  cache->MakePlan(cache->Find("k"), std::vector<HostTensor>(), kNoDeadline,
                  plans.Sink());
  EXPECT_EQ(plans.Next().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(ProgramCacheTest, ManyThreadsManyKeys) {
  const auto cache = Make({.max_programs = 4, .threads = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string key = absl::StrCat((i * (t + 1)) % 7);
        if (cache->Find(key) == nullptr) {
          EXPECT_TRUE(Compile(*cache, key).ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(cache->stats().programs, 4u);
}

}  // namespace
}  // namespace weir
