#include "kernels/graph/program_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "kernels/base/reclaimer.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/graph/test_operators.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::weir::testing::Floats;
using ::weir::testing::Input;
using ::weir::testing::Node;

// A door that a factory waits at.
class Gate {
 public:
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(&mu_);
    ++arrived_;
    changed_.NotifyAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void AwaitArrival() {
    MutexLock lock(&mu_);
    while (arrived_ == 0) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ WEIR_GUARDED_BY(mu_) = false;
  int arrived_ WEIR_GUARDED_BY(mu_) = 0;
};

// Collects what `done` was told.
template <typename T>
class Answers {
 public:
  absl::AnyInvocable<void(T)> Sink() {
    return [this](T answer) {
      MutexLock lock(&mu_);
      answers_.push_back(std::move(answer));
      changed_.NotifyAll();
    };
  }
  T Next() {
    MutexLock lock(&mu_);
    while (answers_.empty()) changed_.Wait(&mu_);
    T answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  size_t size() {
    MutexLock lock(&mu_);
    return answers_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<T> answers_ WEIR_GUARDED_BY(mu_);
};

using Programs = Answers<ProgramCache::ProgramOr>;

absl::StatusOr<Graph> NegGraph() {
  Graph graph;
  graph.inputs = {Input("x", SymbolicDims{Dim()})};
  graph.constants["c"] = Floats({25}, std::vector<float>(25, 1));
  graph.nodes = {Node("Neg", {"x"}, {"y"})};
  graph.outputs = {"y", "c"};
  return graph;
}

// A factory whose compilation stands still before the gate.
auto Behind(Gate& gate) {
  return [&gate] {
    gate.Pass();
    return NegGraph();
  };
}

class ProgramCacheTest : public ::testing::Test {
 protected:
  std::unique_ptr<ProgramCache> Make(ProgramCacheOptions options = {}) {
    return std::make_unique<ProgramCache>(device_.get(), &operators_.registry,
                                          &timers_, options);
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

TEST_F(ProgramCacheTest, CallersOfOneKeyShareOneCompilation) {
  const auto cache = Make();
  Gate gate;
  std::atomic<int> made{0};
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    ++made;
    gate.Pass();
    return NegGraph();
  };
  Programs answers;
  for (int i = 0; i < 10; ++i) {
    cache->GetOrCompile("k", factory, kNoDeadline, answers.Sink());
  }
  gate.Open();
  const auto first = answers.Next();
  ASSERT_TRUE(first.ok());
  for (int i = 1; i < 10; ++i) EXPECT_EQ(*answers.Next(), *first);
  EXPECT_EQ(made, 1);
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

TEST_F(ProgramCacheTest, GivesUpAtTheDeadlineButGoesOnForOthers) {
  const auto cache = Make();
  Gate gate;
  Programs late;
  Programs patient;
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    gate.Pass();
    return NegGraph();
  };
  cache->GetOrCompile("k", factory, kNoDeadline, patient.Sink());
  cache->GetOrCompile("k", factory, NowNanos(), late.Sink());
  const absl::Status status = late.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(RetryAfter(status).has_value());  // it was the caller's
  EXPECT_EQ(patient.size(), 0u);
  gate.Open();
  EXPECT_TRUE(patient.Next().ok());
  EXPECT_EQ(late.size(), 0u);
}

// A caller without a deadline, while others compile.
TEST_F(ProgramCacheTest, NobodyWaitsForEver) {
  Gate gate;
  const auto cache = Make({.max_wait = absl::ZeroDuration()});
  Programs running, queued;
  const auto hold = Behind(gate);
  cache->GetOrCompile("running", hold, kNoDeadline, running.Sink());
  cache->GetOrCompile("queued", hold, kNoDeadline, queued.Sink());
  for (Programs* answers : {&running, &queued}) {
    const absl::Status status = answers->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.message(),
              "the program was not compiled or planned within 0, the longest "
              "wait; try again later");
    EXPECT_EQ(Reason(status), "COMPILE_WAIT_TOO_LONG");
    EXPECT_TRUE(RetryAfter(status).has_value());
  }
  EXPECT_EQ(cache->stats().queued, 0u);
  gate.Open();
}

// Which count as dear until one was made.
TEST_F(ProgramCacheTest, PlansDoNotWaitBehindThoseOfLargePrograms) {
  const auto cache = Make();
  const auto make = []() -> absl::StatusOr<Graph> {
    Graph graph;
    graph.inputs = {Input("x0", SymbolicDims{Dim()})};
    for (size_t i = 0; i <= kSmallPlanNodes; ++i) {
      graph.nodes.push_back(
          Node("Neg", {absl::StrCat("x", i)}, {absl::StrCat("x", i + 1)}));
    }
    graph.outputs = {absl::StrCat("x", kSmallPlanNodes + 1)};
    return graph;
  };
  const auto large = Compile(*cache, "large", make);
  ASSERT_TRUE(large.ok()) << large.status();
  ASSERT_GT((*large)->nodes(), kSmallPlanNodes);
  const auto another = *Compile(*cache, "another large one", make);
  const auto small = *Compile(*cache, "small");
  const std::vector<HostTensor> one = {{DType::kFloat, {1}, nullptr}};
  Gate open;
  // Answers run on the plan thread.
  cache->MakePlan(*large, one, kNoDeadline,
                  [&](ProgramCache::PlanOr) { open.Pass(); });
  open.AwaitArrival();
  Answers<ProgramCache::PlanOr> large_answers, answers;
  cache->MakePlan(another, one, kNoDeadline, large_answers.Sink());
  cache->MakePlan(small, one, NowNanos() + 20'000'000'000, answers.Sink());
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(large_answers.size(), 0u);
  EXPECT_EQ(cache->stats().plans_queued, 1u);
  open.Open();
  EXPECT_TRUE(large_answers.Next().ok());
}

// Programs with a node whose planning waits at a gate.
class DearPlans : public ProgramCacheTest {
 protected:
  void SetUp() override {
    OpDef held;
    held.name = "Held";
    held.inputs = {{"X", {DType::kFloat}}};
    held.outputs = {{"Y"}};
    held.infer = testing::SameShape;
    held.cost = LinearCost;
    ASSERT_TRUE(operators_.registry.Register(held).ok());
    ASSERT_TRUE(
        operators_.registry
            .RegisterKernel(
                DeviceKind::kCpu, "", "Held",
                testing::Factory(
                    [this](const PlanArgs&) -> absl::StatusOr<RunFunction> {
                      planned_.Set();
                      open_.Pass();
                      return RunFunction(
                          [](const RunArgs&) { return absl::OkStatus(); });
                    }))
            .ok());
  }
  void TearDown() override { open_.Open(); }

  std::shared_ptr<const Program> Held(ProgramCache& cache, std::string key) {
    return *Compile(cache, std::move(key), []() -> absl::StatusOr<Graph> {
      Graph graph;
      graph.inputs = {Input("x", SymbolicDims{Dim()})};
      graph.nodes = {Node("Held", {"x"}, {"y"})};
      graph.outputs = {"y"};
      return graph;
    });
  }
  // Asks for the plan of so many rows; it has a while, on a busy machine.
  void Plan(ProgramCache& cache, const std::shared_ptr<const Program>& program,
            int64_t rows, Answers<ProgramCache::PlanOr>& answers) {
    const std::vector<HostTensor> inputs = {{DType::kFloat, {rows}, nullptr}};
    cache.MakePlan(program, inputs, NowNanos() + 20'000'000'000,
                   answers.Sink());
  }

  Event planned_;
  Gate open_;
  Answers<ProgramCache::PlanOr> held_;
};

// However few nodes they have.
TEST_F(DearPlans, LeaveAThreadToProgramsWhosePlansWereQuick) {
  const auto cache = Make({.quick_plan = absl::InfiniteDuration()});
  const auto quick = *Compile(*cache, "quick");
  Answers<ProgramCache::PlanOr> answers;
  Plan(*cache, quick, 1, answers);
  ASSERT_TRUE(answers.Next().ok());
  std::vector<std::shared_ptr<const Program>> programs;
  for (const char* key : {"a", "b", "c", "d"}) {
    programs.push_back(Held(*cache, key));
    Plan(*cache, programs.back(), 1, held_);
  }
  planned_.Wait(2);
  Plan(*cache, quick, 2, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(planned_.count(), 2u);
  EXPECT_EQ(cache->stats().plans_queued, 2u);
  open_.Open();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(held_.Next().ok());
}

// Others' shapes do not wait behind those of one program, nor do two threads
// make the same plan.
TEST_F(DearPlans, OfOneProgramAreMadeOneAtATime) {
  const auto cache = Make();
  const auto program = Held(*cache, "a");
  for (const int64_t rows : {1, 1, 2, 3}) Plan(*cache, program, rows, held_);
  planned_.Wait();
  Answers<ProgramCache::PlanOr> answers;
  Plan(*cache, *Compile(*cache, "other"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(planned_.count(), 1u);
  EXPECT_EQ(cache->stats().plans_queued, 3u);
  open_.Open();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(held_.Next().ok());
  EXPECT_EQ(planned_.count(), 3u);
}

TEST_F(DearPlans, OfSmallProgramsAreKnownByWhatTheLastOneTook) {
  const auto cache = Make({.quick_plan = absl::ZeroDuration()});
  const auto dear = *Compile(*cache, "dear");
  Answers<ProgramCache::PlanOr> first, answers;
  Plan(*cache, dear, 1, first);
  ASSERT_TRUE(first.Next().ok());
  // The thread for all of them.
  Gate open;
  cache->MakePlan(dear, std::vector<HostTensor>{{DType::kFloat, {2}, nullptr}},
                  kNoDeadline, [&](ProgramCache::PlanOr) { open.Pass(); });
  open.AwaitArrival();
  Plan(*cache, dear, 3, first);
  Plan(*cache, *Compile(*cache, "new"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(cache->stats().plans_queued, 1u);
  open.Open();
  EXPECT_TRUE(first.Next().ok());
}

TEST_F(ProgramCacheTest, RefusesMoreThanTheQueueHolds) {
  const auto cache = Make({.max_queued = 1});
  Gate gate;
  Programs answers;
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    gate.Pass();
    return NegGraph();
  };
  cache->GetOrCompile("running", factory, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  cache->GetOrCompile("queued", factory, kNoDeadline, answers.Sink());
  Programs refused;
  cache->GetOrCompile("third", factory, kNoDeadline, refused.Sink());
  const absl::Status status = refused.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  // One more caller of a queued key is no more work.
  cache->GetOrCompile("queued", factory, kNoDeadline, answers.Sink());
  gate.Open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(answers.Next().ok());
}

// One compilation at a time, of owners that ask while the first one runs.
class Owners : public ProgramCacheTest {
 protected:
  void SetUp() override {
    cache_ = Make({.max_queued = 8, .max_queued_bytes = 100});
    cache_->GetOrCompile("running", Behind(gate_), kNoDeadline, answers_.Sink(),
                         "a");
    gate_.AwaitArrival();
  }
  void TearDown() override { gate_.Open(); }

  void Ask(const std::string& owner, const std::string& key) {
    ++asked_;
    cache_->GetOrCompile(
        key,
        [this, key] {
          order_.push_back(key);
          return NegGraph();
        },
        kNoDeadline, answers_.Sink(), owner);
  }
  absl::Status Refused(const std::string& owner, const std::string& key) {
    Programs refused;
    cache_->GetOrCompile(key, NegGraph, kNoDeadline, refused.Sink(), owner);
    return refused.size() == 0 ? absl::OkStatus() : refused.Next().status();
  }
  // The keys that were asked for, as they were compiled.
  std::vector<std::string> Order() {
    gate_.Open();
    for (int i = 0; i <= asked_; ++i) EXPECT_TRUE(answers_.Next().ok());
    return order_;
  }

  std::unique_ptr<ProgramCache> cache_;
  Gate gate_;
  Programs answers_;
  int asked_ = 0;
  std::vector<std::string> order_;  // the compile thread's
};

TEST_F(Owners, TakeTurns) {
  for (const char* key : {"a1", "a2", "a3"}) Ask("a", key);
  for (const char* key : {"b1", "b2"}) Ask("b", key);
  Ask("c", "c1");
  EXPECT_THAT(Order(), ElementsAre("b1", "c1", "a1", "b2", "a2", "a3"));
}

TEST_F(Owners, LeaveRoomForOthers) {
  for (const char* key : {"a1", "a2", "a3", "a4"}) Ask("a", key);
  const absl::Status status = Refused("a", "a5");
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  for (const char* key : {"b1", "b2"}) Ask("b", key);
  EXPECT_EQ(Reason(Refused("b", "b3")), "COMPILE_QUEUE_FULL");
  Ask("c", "c1");
  EXPECT_EQ(Order().size(), 7u);
}

TEST_F(Owners, LeaveBytesForOthers) {
  // 7 bytes are the running one's.
  Ask("a", std::string(40, 'a'));
  EXPECT_EQ(Reason(Refused("a", std::string(20, 'b'))), "COMPILE_QUEUE_FULL");
  Ask("b", std::string(20, 'b'));
  EXPECT_EQ(Order().size(), 2u);
}

TEST_F(Owners, WaitForWhatTheyShareNoLongerThanForTheirOwn) {
  for (const char* key : {"a1", "a2", "a3"}) Ask("a", key);
  Ask("b", "b1");
  Ask("b", "a3");
  // Behind nobody's turn for this one.
  Ask("b", "a1");
  EXPECT_THAT(Order(), ElementsAre("b1", "a1", "a3", "a2"));
}

TEST_F(ProgramCacheTest, BoundsTheBytesOfKeysThatWait) {
  const auto cache = Make({.max_queued_bytes = 100});
  Gate gate;
  Programs answers;
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    gate.Pass();
    return NegGraph();
  };
  cache->GetOrCompile("running", factory, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  // One that is larger waits nevertheless, alone.
  cache->GetOrCompile(std::string(200, 'l'), factory, kNoDeadline,
                      answers.Sink());
  Programs refused;
  cache->GetOrCompile("k", factory, kNoDeadline, refused.Sink());
  const absl::Status status = refused.Next().status();
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  gate.Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(answers.Next().ok());
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

TEST_F(ProgramCacheTest, BoundsThoseWhoWait) {
  const auto cache = Make({.max_waiters = 1});
  Gate gate;
  Programs answers;
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    gate.Pass();
    return NegGraph();
  };
  cache->GetOrCompile("k", factory, kNoDeadline, answers.Sink());
  Programs refused;
  cache->GetOrCompile("k", factory, kNoDeadline, refused.Sink());
  EXPECT_EQ(Reason(refused.Next().status()), "COMPILE_QUEUE_FULL");
  gate.Open();
  EXPECT_TRUE(answers.Next().ok());
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
std::shared_ptr<const Constant> Traced(Gate* open,
                                       Answers<std::thread::id>* freed_on) {
  auto constant = std::make_shared<Constant>();
  auto* values = new (std::align_val_t{64}) float[16]{};
  constant->tensor = {DType::kFloat, {16}, values};
  constant->owner =
      std::shared_ptr<const void>(values, [open, freed_on](const float* held) {
        open->Pass();
        operator delete[](const_cast<float*>(held), std::align_val_t{64});
        freed_on->Sink()(std::this_thread::get_id());
      });
  return constant;
}

TEST_F(ProgramCacheTest, WhoeverDropsAProgramLastDoesNotWait) {
  Reclaimer reclaimer;
  const auto cache = Make({.max_programs = 1, .reclaim = reclaimer.queue()});
  Gate open;
  Answers<std::thread::id> freed_on;
  auto program = *Compile(*cache, "a", [&]() -> absl::StatusOr<Graph> {
    absl::StatusOr<Graph> graph = NegGraph();
    graph->constants["c"] = Traced(&open, &freed_on);
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
    ~Object() { gate->Pass(); }
    Gate* gate;
  };
  void Drop() {
    ReclaimQueue::Share(std::unique_ptr<Object>(new Object{&gate_}), queue());
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
  const auto cache = Make({.max_bytes = bound, .reclaim = standstill.queue()});
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
  const auto home = Make({.reclaim = standstill.queue()});
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

// A large key, which is traced to where it ends.
class LargeKeys : public ProgramCacheTest {
 protected:
  using Key = std::shared_ptr<const std::string>;

  // Of the letter only.
  Key Make(char letter) {
    return {new std::string(ProgramCache::kLargeKeyBytes + 1, letter),
            [this](const std::string* key) {
              delete key;
              freed_on_.Sink()(std::this_thread::get_id());
            }};
  }
  ProgramCache::WaitId Get(
      char letter, absl::AnyInvocable<void(ProgramCache::ProgramOr)> done,
      Nanos deadline = kNoDeadline,
      ProgramCache::GraphFactory factory = NegGraph) {
    return cache_->GetOrCompile(Make(letter), std::move(factory), deadline,
                                std::move(done));
  }
  void OccupyTheCompileThread(char letter) {
    Get(letter, running_.Sink(), kNoDeadline, Behind(gate_));
    gate_.AwaitArrival();
  }
  void TearDown() override { gate_.Open(); }

  Answers<std::thread::id> freed_on_;
  Gate gate_;
  Programs running_, answers_;
  std::unique_ptr<ProgramCache> cache_ =
      ProgramCacheTest::Make({.max_queued = 1});
};

// To free it takes long too: a caller who leaves is told, and no more.
TEST_F(LargeKeys, EndElsewhereWhoeverLeaves) {
  OccupyTheCompileThread('r');
  cache_->Cancel(Get('k', answers_.Sink()));
  EXPECT_EQ(answers_.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_NE(freed_on_.Next(), std::this_thread::get_id());
  std::thread::id timer;
  Get(
      'k',
      [&](ProgramCache::ProgramOr program) {
        timer = std::this_thread::get_id();
        answers_.Sink()(std::move(program));
      },
      NowNanos());
  EXPECT_EQ(answers_.Next().status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const std::thread::id freed_on = freed_on_.Next();
  EXPECT_NE(freed_on, std::this_thread::get_id());
  EXPECT_NE(freed_on, timer);
}

// The copy of one that joins ends as soon as it was compared, which its caller
// does not do.
TEST_F(LargeKeys, AreComparedElsewhereByWhoeverJoins) {
  OccupyTheCompileThread('k');
  Get('k', answers_.Sink());
  EXPECT_NE(freed_on_.Next(), std::this_thread::get_id());
  EXPECT_EQ(cache_->stats().queued, 0u);
  gate_.Open();
  const ProgramCache::ProgramOr program = running_.Next();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*answers_.Next(), *program);
}

TEST_F(LargeKeys, AreFoundElsewhere) {
  Get('k', answers_.Sink());
  const auto program = *answers_.Next();
  std::thread::id told_on;
  Get('k', [&](ProgramCache::ProgramOr found) {
    told_on = std::this_thread::get_id();
    answers_.Sink()(std::move(found));
  });
  EXPECT_EQ(*answers_.Next(), program);
  EXPECT_NE(told_on, std::this_thread::get_id());
  EXPECT_NE(freed_on_.Next(), std::this_thread::get_id());
}

TEST_F(LargeKeys, EndElsewhereWhenTheyAreRefused) {
  OccupyTheCompileThread('r');
  Get('q', answers_.Sink());
  Get('k', answers_.Sink());
  EXPECT_EQ(Reason(answers_.Next().status()), "COMPILE_QUEUE_FULL");
  EXPECT_NE(freed_on_.Next(), std::this_thread::get_id());
  gate_.Open();
  EXPECT_TRUE(answers_.Next().ok());
}

// What waits to be read counts, and leaves with its caller.
TEST_F(LargeKeys, AreBoundedBeforeTheyAreRead) {
  const size_t each = ProgramCache::kLargeKeyBytes + 1;
  cache_ = ProgramCacheTest::Make({.max_queued_bytes = 2 * each});
  Get('k', answers_.Sink());
  ASSERT_TRUE(answers_.Next().ok());
  // The answer to a hit keeps others from being read.
  Programs found;
  Get('k', [&](ProgramCache::ProgramOr program) {
    gate_.Pass();
    found.Sink()(std::move(program));
  });
  gate_.AwaitArrival();
  const auto waits = Get('k', found.Sink());
  Get('k', answers_.Sink());
  EXPECT_EQ(Reason(answers_.Next().status()), "COMPILE_QUEUE_FULL");
  EXPECT_GE(cache_->stats().queued_bytes, 2 * each);
  cache_->Cancel(waits);
  EXPECT_EQ(found.Next().status().code(), absl::StatusCode::kCancelled);
  gate_.Open();
  EXPECT_TRUE(found.Next().ok());
  for (int i = 0; i < 3; ++i) freed_on_.Next();
  EXPECT_EQ(cache_->stats().queued_bytes, 0u);
}

TEST_F(ProgramCacheTest, MakesPlans) {
  const auto cache = Make();
  const auto program = *Compile(*cache, "k");
  const auto x = Floats({2}, {1, 2});
  const std::vector<HostTensor> inputs = {x->tensor};
  Answers<ProgramCache::PlanOr> answers;
  cache->MakePlan(program, inputs, kNoDeadline, answers.Sink());
  const auto plan = answers.Next();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(program->FindPlan(inputs), *plan);
}

// Which a caller's deadline gives back, however long the compilation before it.
TEST_F(ProgramCacheTest, WhatNobodyWaitsForLeavesTheQueueWithItsBytes) {
  const auto cache = Make({.max_queued = 1});
  Gate gate;
  Programs running, late;
  const auto hold = Behind(gate);
  cache->GetOrCompile("running", hold, kNoDeadline, running.Sink());
  gate.AwaitArrival();
  const auto key = std::make_shared<const std::string>(1 << 20, 'k');
  std::atomic<int> made{0};
  for (int i = 0; i < 3; ++i) {
    cache->GetOrCompile(
        key,
        [&made, key] {
          ++made;
          return NegGraph();
        },
        NowNanos(), late.Sink());
    EXPECT_EQ(late.Next().status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(key.use_count(), 1);
    EXPECT_EQ(cache->stats().queued, 0u);
    EXPECT_EQ(cache->stats().queued_bytes, std::string("running").size());
  }
  gate.Open();
  EXPECT_TRUE(running.Next().ok());
  EXPECT_TRUE(Compile(*cache, "next").ok());
  EXPECT_EQ(made, 0);
  EXPECT_EQ(cache->stats().queued_bytes, 0u);
}

// Two wait for it: it stays for the one.
TEST_F(ProgramCacheTest, WhatOneStillWaitsForStaysInTheQueue) {
  const auto cache = Make();
  Gate gate;
  Programs running, late, patient;
  const auto hold = Behind(gate);
  cache->GetOrCompile("running", hold, kNoDeadline, running.Sink());
  gate.AwaitArrival();
  cache->GetOrCompile("k", NegGraph, kNoDeadline, patient.Sink());
  cache->Cancel(cache->GetOrCompile("k", NegGraph, kNoDeadline, late.Sink()));
  EXPECT_EQ(late.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cache->stats().queued, 1u);
  gate.Open();
  EXPECT_TRUE(patient.Next().ok());
  EXPECT_EQ(late.size(), 0u);
}

// What is being compiled is held as well.
TEST_F(ProgramCacheTest, CountsTheBytesThatAreBeingCompiled) {
  const auto cache = Make({.max_queued_bytes = 100});
  Gate gate;
  Programs answers, refused;
  const auto hold = Behind(gate);
  cache->GetOrCompile(std::string(60, 'r'), hold, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  const auto waits = cache->GetOrCompile(std::string(30, 'q'), hold,
                                         kNoDeadline, answers.Sink());
  cache->GetOrCompile(std::string(20, 't'), hold, kNoDeadline, refused.Sink());
  const absl::Status status = refused.Next().status();
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_EQ(status.message(),
            "more than 100 bytes of graphs wait to be compiled "
            "(max_queued_bytes); try again later");
  EXPECT_EQ(cache->stats().queued_bytes, 90u);
  // Room comes back with the caller who leaves.
  cache->Cancel(waits);
  EXPECT_EQ(answers.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cache->stats().queued_bytes, 60u);
  cache->GetOrCompile(std::string(20, 't'), hold, kNoDeadline, answers.Sink());
  gate.Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(answers.Next().ok());
}

TEST_F(ProgramCacheTest, StopsACompilationThatNobodyWaitsForAnyMore) {
  const auto cache = Make();
  Gate gate;
  Programs left, joined;
  const auto hold = Behind(gate);
  const auto wait = cache->GetOrCompile("k", hold, kNoDeadline, left.Sink());
  gate.AwaitArrival();
  cache->Cancel(wait);
  EXPECT_EQ(left.Next().status().code(), absl::StatusCode::kCancelled);
  cache->Cancel(wait);  // of no effect
  // It holds its bytes until it ends.
  EXPECT_EQ(cache->stats().queued_bytes, 1u);
  gate.Open();
  EXPECT_TRUE(Compile(*cache, "next").ok());
  EXPECT_EQ(cache->Find("k"), nullptr);
  EXPECT_EQ(cache->stats().failed, 0u);
  EXPECT_EQ(cache->stats().programs, 1u);
  EXPECT_EQ(left.size(), 0u);
}

// Whoever comes while it ends gets one of their own.
TEST_F(ProgramCacheTest, NobodyJoinsACompilationThatWasGivenUp) {
  const auto cache = Make();
  Gate gate;
  Programs left, later;
  const auto hold = Behind(gate);
  const auto wait = cache->GetOrCompile("k", hold, kNoDeadline, left.Sink());
  gate.AwaitArrival();
  cache->Cancel(wait);
  cache->GetOrCompile("k", hold, kNoDeadline, later.Sink());
  gate.Open();
  const auto program = later.Next();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(cache->Find("k"), *program);
  EXPECT_EQ(left.size(), 1u);
}

class PlansOfACache : public ProgramCacheTest {
 protected:
  void SetUp() override {
    cache_ = Make({.plan_threads = 1});
    const auto program = Compile(*cache_, "k");
    ASSERT_TRUE(program.ok()) << program.status();
    program_ = *program;
  }
  void TearDown() override { open_.Open(); }

  // Until open_: answers run on the plan thread.
  void OccupyThePlanThread() {
    cache_->MakePlan(program_, Rows(1), kNoDeadline,
                     [this](ProgramCache::PlanOr) { open_.Pass(); });
    open_.AwaitArrival();
  }

  std::unique_ptr<ProgramCache> cache_;
  std::shared_ptr<const Program> program_;
  Answers<ProgramCache::PlanOr> answers_;
  Gate open_;
};

TEST_F(PlansOfACache, DoNotWaitBehindCompilations) {
  Programs compiled;
  const auto hold = Behind(open_);
  cache_->GetOrCompile("running", hold, kNoDeadline, compiled.Sink());
  open_.AwaitArrival();
  cache_->MakePlan(program_, Rows(2), kNoDeadline, answers_.Sink());
  EXPECT_TRUE(answers_.Next().ok());
  EXPECT_EQ(compiled.size(), 0u);
  open_.Open();
  EXPECT_TRUE(compiled.Next().ok());
}

TEST_F(PlansOfACache, AreNotMadeForWhoeverLeft) {
  OccupyThePlanThread();
  cache_->MakePlan(program_, Rows(2), NowNanos(), answers_.Sink());
  EXPECT_EQ(answers_.Next().status().code(),
            absl::StatusCode::kDeadlineExceeded);
  const auto wait =
      cache_->MakePlan(program_, Rows(3), kNoDeadline, answers_.Sink());
  cache_->Cancel(wait);
  EXPECT_EQ(answers_.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cache_->stats().plans_queued, 0u);
  open_.Open();
  cache_->MakePlan(program_, Rows(4), kNoDeadline, answers_.Sink());
  EXPECT_TRUE(answers_.Next().ok());
  EXPECT_EQ(program_->FindPlan(Rows(2)), nullptr);
  EXPECT_EQ(program_->FindPlan(Rows(3)), nullptr);
  EXPECT_EQ(answers_.size(), 0u);
}

TEST_F(PlansOfACache, AreToldOfStop) {
  OccupyThePlanThread();
  cache_->MakePlan(program_, Rows(2), kNoDeadline, answers_.Sink());
  std::thread stop([&] { cache_->Stop(); });
  EXPECT_EQ(answers_.Next().status().code(), absl::StatusCode::kCancelled);
  open_.Open();
  stop.join();
}

TEST_F(PlansOfACache, EndAtTheNextNodeOnceStopped) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(program_->MakePlan(Rows(2), stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(program_->FindPlan(Rows(2)), nullptr);
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
