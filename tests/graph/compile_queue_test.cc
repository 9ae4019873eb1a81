#include "kernels/graph/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <map>
#include <thread>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/keyed_hash.h"
#include "kernels/base/long_step_bytes.h"
#include "kernels/base/stop_token.h"
#include "tests/graph/queue_callers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::weir::testing::Answers;
using ::weir::testing::Behind;
using ::weir::testing::Gate;
using ::weir::testing::NegGraph;
using Programs = Answers<CompileQueue::ProgramOr>;

// Keeps all that it makes, by its hash.
class KeepingMaker final : public CompileQueue::Maker {
 public:
  std::shared_ptr<const void> Kept(uint64_t hash) const override {
    MutexLock lock(&mu_);
    const auto found = kept_.find(hash);
    return found == kept_.end() ? nullptr : found->second.program;
  }
  std::shared_ptr<const Program> Find(uint64_t hash,
                                      std::string_view key) override {
    MutexLock lock(&mu_);
    const auto found = kept_.find(hash);
    if (found == kept_.end() || *found->second.key != key) return nullptr;
    return found->second.program;
  }
  CompileQueue::ProgramOr Make(const CompileQueue::Key& key, uint64_t hash,
                               CompileQueue::GraphFactory factory,
                               const StopToken& stop) override {
    auto graph = factory();
    if (!graph.ok()) return graph.status();
    ProgramOptions options;
    options.stop = stop;
    auto program = Program::Compile(*std::move(graph), *device_,
                                    operators_.registry, options);
    if (!program.ok()) return program;
    MutexLock lock(&mu_);
    kept_.try_emplace(hash, Entry{key, *program});
    return program;
  }

  void Forget() {
    MutexLock lock(&mu_);
    kept_.clear();
  }

 private:
  struct Entry {
    CompileQueue::Key key;
    std::shared_ptr<const Program> program;
  };

  testing::TestOperators operators_;
  const std::unique_ptr<Device> device_ = MakeCpuDevice({});
  mutable Mutex mu_;
  std::map<uint64_t, Entry> kept_ WEIR_GUARDED_BY(mu_);
};

uint64_t Hash(std::string_view key) {
  KeyedHash hash;
  hash.Add(key);
  return hash.Finish();
}

class CompileQueueTest : public ::testing::Test {
 protected:
  std::shared_ptr<CompileQueue> Make(CompileQueueOptions options = {}) {
    return std::make_shared<CompileQueue>(&maker_, &timers_, options);
  }

  static CompileQueue::WaitId Get(CompileQueue& queue, CompileQueue::Key key,
                                  CompileQueue::GraphFactory factory,
                                  Nanos deadline, CompileQueue::Done done,
                                  std::string owner = {}) {
    const uint64_t hash = Hash(*key);
    return queue.Get(std::move(key), hash, std::move(factory), deadline,
                     std::move(done), std::move(owner));
  }
  static CompileQueue::WaitId Get(CompileQueue& queue, std::string key,
                                  CompileQueue::GraphFactory factory,
                                  Nanos deadline, CompileQueue::Done done,
                                  std::string owner = {}) {
    return Get(queue, std::make_shared<const std::string>(std::move(key)),
               std::move(factory), deadline, std::move(done), std::move(owner));
  }
  // Compiles "key" and waits for it.
  static CompileQueue::ProgramOr Compile(
      CompileQueue& queue, std::string key,
      CompileQueue::GraphFactory factory = NegGraph) {
    Programs answers;
    Get(queue, std::move(key), std::move(factory), kNoDeadline, answers.Sink());
    return answers.Next();
  }
  std::shared_ptr<const Program> Find(std::string_view key) {
    return maker_.Find(Hash(key), key);
  }

  KeepingMaker maker_;
  TimerQueue timers_;
};

TEST_F(CompileQueueTest, CallersOfOneKeyShareOneCompilation) {
  const auto queue = Make();
  Gate gate;
  std::atomic<int> made{0};
  const auto factory = [&]() -> absl::StatusOr<Graph> {
    ++made;
    gate.Pass();
    return NegGraph();
  };
  Programs answers;
  for (int i = 0; i < 10; ++i) {
    Get(*queue, "k", factory, kNoDeadline, answers.Sink());
  }
  gate.Open();
  const auto first = answers.Next();
  ASSERT_TRUE(first.ok());
  for (int i = 1; i < 10; ++i) EXPECT_EQ(*answers.Next(), *first);
  EXPECT_EQ(made, 1);
}

TEST_F(CompileQueueTest, GivesUpAtTheDeadlineButGoesOnForOthers) {
  const auto queue = Make();
  Gate gate;
  Programs late;
  Programs patient;
  const auto factory = Behind(gate);
  Get(*queue, "k", factory, kNoDeadline, patient.Sink());
  Get(*queue, "k", factory, NowNanos(), late.Sink());
  const absl::Status status = late.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(RetryAfter(status).has_value());  // it was the caller's
  EXPECT_EQ(patient.size(), 0u);
  gate.Open();
  EXPECT_TRUE(patient.Next().ok());
  EXPECT_EQ(late.size(), 0u);
}

// A caller without a deadline, while others compile.
TEST_F(CompileQueueTest, NobodyWaitsForEver) {
  Gate gate;
  const auto queue = Make({.max_wait = absl::ZeroDuration()});
  Programs running, queued;
  const auto hold = Behind(gate);
  Get(*queue, "running", hold, kNoDeadline, running.Sink());
  Get(*queue, "queued", hold, kNoDeadline, queued.Sink());
  for (Programs* answers : {&running, &queued}) {
    const absl::Status status = answers->Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(status.message(),
              "the program was not compiled or planned within 0, the longest "
              "wait; try again later");
    EXPECT_EQ(Reason(status), "COMPILE_WAIT_TOO_LONG");
    EXPECT_TRUE(RetryAfter(status).has_value());
  }
  EXPECT_EQ(queue->stats().queued, 0u);
  gate.Open();
}

// How long it took is what it added to the sum.
TEST_F(CompileQueueTest, TellsWhatRunsAndHowLongItTook) {
  using Times = CompileQueue::Times;
  const auto queue = Make();
  Gate gate;
  Programs answers;
  const auto factory = Behind(gate);
  Get(*queue, "running", factory, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  const Nanos held_from = NowNanos();
  EXPECT_EQ(queue->stats().running, 1u);
  EXPECT_EQ(queue->stats().queued, 0u);
  EXPECT_EQ(queue->stats().times.sum_ns, 0u);
  const Nanos held_until = NowNanos();
  gate.Open();
  EXPECT_TRUE(answers.Next().ok());
  const CompileQueue::Stats ran = queue->stats();
  EXPECT_EQ(ran.running, 0u);
  EXPECT_GE(ran.times.sum_ns, static_cast<uint64_t>(held_until - held_from));
  size_t bucket = 0;
  while (bucket < Times::kBounds.size() &&
         ran.times.sum_ns > static_cast<uint64_t>(Times::kBounds[bucket])) {
    ++bucket;
  }
  std::array<uint64_t, Times::kBounds.size() + 1> expected = {};
  expected[bucket] = 1;
  EXPECT_EQ(ran.times.counts, expected);
  // One that fails, and fast, is none that was compiled fast.
  Get(
      *queue, "bad",
      []() -> absl::StatusOr<Graph> { return absl::InternalError("no"); },
      kNoDeadline, answers.Sink());
  EXPECT_FALSE(answers.Next().ok());
  EXPECT_EQ(queue->stats().running, 0u);
  EXPECT_EQ(queue->stats().times.counts, expected);
}

TEST_F(CompileQueueTest, RefusesMoreThanTheQueueHolds) {
  const auto queue = Make({.max_queued = 1});
  Gate gate;
  Programs answers;
  const auto factory = Behind(gate);
  Get(*queue, "running", factory, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  Get(*queue, "queued", factory, kNoDeadline, answers.Sink());
  Programs refused;
  Get(*queue, "third", factory, kNoDeadline, refused.Sink());
  const absl::Status status = refused.Next().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  // One more caller of a queued key is no more work.
  Get(*queue, "queued", factory, kNoDeadline, answers.Sink());
  gate.Open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(answers.Next().ok());
}

// One compilation at a time, of owners that ask while the first one runs.
class Owners : public CompileQueueTest {
 protected:
  void SetUp() override {
    queue_ = Make({.max_queued = 8, .max_queued_bytes = 100});
    Get(*queue_, "running", Behind(gate_), kNoDeadline, answers_.Sink(), "a");
    gate_.AwaitArrival();
  }
  void TearDown() override { gate_.Open(); }

  void Ask(const std::string& owner, const std::string& key) {
    ++asked_;
    Get(
        *queue_, key,
        [this, key] {
          order_.push_back(key);
          return NegGraph();
        },
        kNoDeadline, answers_.Sink(), owner);
  }
  absl::Status Refused(const std::string& owner, const std::string& key) {
    Programs refused;
    Get(*queue_, key, NegGraph, kNoDeadline, refused.Sink(), owner);
    return refused.size() == 0 ? absl::OkStatus() : refused.Next().status();
  }
  // The keys that were asked for, as they were compiled.
  std::vector<std::string> Order() {
    gate_.Open();
    for (int i = 0; i <= asked_; ++i) EXPECT_TRUE(answers_.Next().ok());
    return order_;
  }

  std::shared_ptr<CompileQueue> queue_;
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
  // To the last byte of what may be.
  EXPECT_EQ(Reason(Refused("a", std::string(14, 'c'))), "COMPILE_QUEUE_FULL");
  Ask("a", std::string(13, 'c'));
  Ask("b", std::string(20, 'b'));
  EXPECT_EQ(Order().size(), 3u);
}

TEST_F(Owners, WaitForWhatTheyShareNoLongerThanForTheirOwn) {
  for (const char* key : {"a1", "a2", "a3"}) Ask("a", key);
  Ask("b", "b1");
  Ask("b", "a3");
  // Behind nobody's turn for this one.
  Ask("b", "a1");
  EXPECT_THAT(Order(), ElementsAre("b1", "a1", "a3", "a2"));
}

TEST_F(CompileQueueTest, BoundsTheBytesOfKeysThatWait) {
  const auto queue = Make({.max_queued_bytes = 100});
  Gate gate;
  Programs answers;
  const auto factory = Behind(gate);
  Get(*queue, "running", factory, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  // One that is larger waits nevertheless, alone.
  Get(*queue, std::string(200, 'l'), factory, kNoDeadline, answers.Sink());
  Programs refused;
  Get(*queue, "k", factory, kNoDeadline, refused.Sink());
  const absl::Status status = refused.Next().status();
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  gate.Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(answers.Next().ok());
  EXPECT_TRUE(Compile(*queue, "k").ok());
}

TEST_F(CompileQueueTest, BoundsThoseWhoWait) {
  const auto queue = Make({.max_waiters = 1});
  Gate gate;
  Programs answers;
  const auto factory = Behind(gate);
  Get(*queue, "k", factory, kNoDeadline, answers.Sink());
  Programs refused;
  Get(*queue, "k", factory, kNoDeadline, refused.Sink());
  EXPECT_EQ(Reason(refused.Next().status()), "COMPILE_QUEUE_FULL");
  gate.Open();
  EXPECT_TRUE(answers.Next().ok());
}

// Which nobody can bring about: each gets its own.
TEST_F(CompileQueueTest, KeysOfOneHashAreTwo) {
  const auto queue = Make();
  Gate gate;
  Programs first, second;
  const auto key = [](const char* text) {
    return std::make_shared<const std::string>(text);
  };
  queue->Get(key("a"), 7, Behind(gate), kNoDeadline, first.Sink(), "");
  gate.AwaitArrival();
  queue->Get(key("b"), 7, NegGraph, kNoDeadline, second.Sink(), "");
  EXPECT_EQ(queue->stats().queued, 1u);
  gate.Open();
  const auto a = first.Next(), b = second.Next();
  ASSERT_TRUE(a.ok()) << a.status();
  ASSERT_TRUE(b.ok()) << b.status();
  EXPECT_NE(*a, *b);
}

// A large key, which is traced to where it ends.
class LargeKeys : public CompileQueueTest {
 protected:
  // Of the letter only.
  CompileQueue::Key Make(char letter) {
    return {new std::string(kLongStepBytes + 1, letter),
            [this](const std::string* key) {
              delete key;
              freed_on_.Sink()(std::this_thread::get_id());
            }};
  }
  CompileQueue::WaitId Get(
      char letter, absl::AnyInvocable<void(CompileQueue::ProgramOr)> done,
      Nanos deadline = kNoDeadline,
      CompileQueue::GraphFactory factory = NegGraph) {
    return CompileQueueTest::Get(*queue_, Make(letter), std::move(factory),
                                 deadline, std::move(done));
  }
  void OccupyTheCompileThread(char letter) {
    Get(letter, running_.Sink(), kNoDeadline, Behind(gate_));
    gate_.AwaitArrival();
  }
  void TearDown() override {
    gate_.Open();
    queue_->Stop();
    maker_.Forget();  // keys that tell where they end
  }

  Answers<std::thread::id> freed_on_;
  Gate gate_;
  Programs running_, answers_;
  std::shared_ptr<CompileQueue> queue_ =
      CompileQueueTest::Make({.max_queued = 1});
};

// To free it takes long too: a caller who leaves is told, and no more.
TEST_F(LargeKeys, EndElsewhereWhoeverLeaves) {
  OccupyTheCompileThread('r');
  queue_->Cancel(Get('k', answers_.Sink()));
  EXPECT_EQ(answers_.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_NE(freed_on_.Next(), std::this_thread::get_id());
  std::thread::id timer;
  Get(
      'k',
      [&](CompileQueue::ProgramOr program) {
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
  EXPECT_EQ(queue_->stats().queued, 0u);
  gate_.Open();
  const CompileQueue::ProgramOr program = running_.Next();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(*answers_.Next(), *program);
}

TEST_F(LargeKeys, AreFoundElsewhere) {
  Get('k', answers_.Sink());
  const auto program = *answers_.Next();
  std::thread::id told_on;
  Get('k', [&](CompileQueue::ProgramOr found) {
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
  const size_t each = kLongStepBytes + 1;
  queue_ = CompileQueueTest::Make({.max_queued_bytes = 2 * each});
  Get('k', answers_.Sink());
  ASSERT_TRUE(answers_.Next().ok());
  // The answer to a hit keeps others from being read.
  Programs found;
  Get('k', [&](CompileQueue::ProgramOr program) {
    gate_.Pass();
    found.Sink()(std::move(program));
  });
  gate_.AwaitArrival();
  const auto waits = Get('k', found.Sink());
  Get('k', answers_.Sink());
  EXPECT_EQ(Reason(answers_.Next().status()), "COMPILE_QUEUE_FULL");
  EXPECT_GE(queue_->stats().queued_bytes, 2 * each);
  queue_->Cancel(waits);
  EXPECT_EQ(found.Next().status().code(), absl::StatusCode::kCancelled);
  gate_.Open();
  EXPECT_TRUE(found.Next().ok());
  for (int i = 0; i < 3; ++i) freed_on_.Next();
  EXPECT_EQ(queue_->stats().queued_bytes, 0u);
}

// Which a caller's deadline gives back, however long the compilation before it.
TEST_F(CompileQueueTest, WhatNobodyWaitsForLeavesTheQueueWithItsBytes) {
  const auto queue = Make({.max_queued = 1});
  Gate gate;
  Programs running, late;
  const auto hold = Behind(gate);
  Get(*queue, "running", hold, kNoDeadline, running.Sink());
  gate.AwaitArrival();
  const auto key = std::make_shared<const std::string>(1 << 20, 'k');
  std::atomic<int> made{0};
  for (int i = 0; i < 3; ++i) {
    Get(
        *queue, key,
        [&made, key] {
          ++made;
          return NegGraph();
        },
        NowNanos(), late.Sink());
    EXPECT_EQ(late.Next().status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(key.use_count(), 1);
    EXPECT_EQ(queue->stats().queued, 0u);
    EXPECT_EQ(queue->stats().queued_bytes, std::string("running").size());
  }
  gate.Open();
  EXPECT_TRUE(running.Next().ok());
  EXPECT_TRUE(Compile(*queue, "next").ok());
  EXPECT_EQ(made, 0);
  EXPECT_EQ(queue->stats().queued_bytes, 0u);
}

// Two wait for it: it stays for the one.
TEST_F(CompileQueueTest, WhatOneStillWaitsForStaysInTheQueue) {
  const auto queue = Make();
  Gate gate;
  Programs running, late, patient;
  const auto hold = Behind(gate);
  Get(*queue, "running", hold, kNoDeadline, running.Sink());
  gate.AwaitArrival();
  Get(*queue, "k", NegGraph, kNoDeadline, patient.Sink());
  queue->Cancel(Get(*queue, "k", NegGraph, kNoDeadline, late.Sink()));
  EXPECT_EQ(late.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queue->stats().queued, 1u);
  gate.Open();
  EXPECT_TRUE(patient.Next().ok());
  EXPECT_EQ(late.size(), 0u);
}

// What is being compiled is held as well.
TEST_F(CompileQueueTest, CountsTheBytesThatAreBeingCompiled) {
  const auto queue = Make({.max_queued_bytes = 100});
  Gate gate;
  Programs answers, refused;
  const auto hold = Behind(gate);
  Get(*queue, std::string(60, 'r'), hold, kNoDeadline, answers.Sink());
  gate.AwaitArrival();
  const auto waits =
      Get(*queue, std::string(30, 'q'), hold, kNoDeadline, answers.Sink());
  Get(*queue, std::string(20, 't'), hold, kNoDeadline, refused.Sink());
  const absl::Status status = refused.Next().status();
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_EQ(status.message(),
            "more than 100 bytes of graphs wait to be compiled "
            "(max_queued_bytes); try again later");
  EXPECT_EQ(queue->stats().queued_bytes, 90u);
  // Room comes back with the caller who leaves.
  queue->Cancel(waits);
  EXPECT_EQ(answers.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queue->stats().queued_bytes, 60u);
  Get(*queue, std::string(20, 't'), hold, kNoDeadline, answers.Sink());
  gate.Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(answers.Next().ok());
}

TEST_F(CompileQueueTest, StopTellsEverybody) {
  const auto queue = Make();
  Gate gate;
  Programs running, queued;
  Get(*queue, "running", Behind(gate), kNoDeadline, running.Sink());
  gate.AwaitArrival();
  Get(*queue, "queued", Behind(gate), kNoDeadline, queued.Sink());
  std::thread stop([&] { queue->Stop(); });
  EXPECT_EQ(queued.Next().status().code(), absl::StatusCode::kCancelled);
  gate.Open();
  stop.join();
  // It ends at its next step.
  EXPECT_EQ(running.Next().status().code(), absl::StatusCode::kCancelled);
  Get(*queue, "late", NegGraph, kNoDeadline, queued.Sink());
  EXPECT_EQ(queued.Next().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(CompileQueueTest, StopsACompilationThatNobodyWaitsForAnyMore) {
  const auto queue = Make();
  Gate gate;
  Programs left, joined;
  const auto hold = Behind(gate);
  const auto wait = Get(*queue, "k", hold, kNoDeadline, left.Sink());
  gate.AwaitArrival();
  queue->Cancel(wait);
  EXPECT_EQ(left.Next().status().code(), absl::StatusCode::kCancelled);
  queue->Cancel(wait);  // of no effect
  // It holds its bytes until it ends.
  EXPECT_EQ(queue->stats().queued_bytes, 1u);
  gate.Open();
  EXPECT_TRUE(Compile(*queue, "next").ok());
  EXPECT_EQ(Find("k"), nullptr);
  EXPECT_EQ(queue->stats().failed, 0u);
  EXPECT_NE(Find("next"), nullptr);
  EXPECT_EQ(left.size(), 0u);
}

// Whoever comes while it ends gets one of their own.
TEST_F(CompileQueueTest, NobodyJoinsACompilationThatWasGivenUp) {
  const auto queue = Make();
  Gate gate, later_gate;
  Programs left, later;
  std::atomic<int> made{0};
  const auto hold = [&made](const Gate& at) {
    return [&made, at] {
      ++made;
      at.Pass();
      return NegGraph();
    };
  };
  const auto wait = Get(*queue, "k", hold(gate), kNoDeadline, left.Sink());
  gate.AwaitArrival();
  queue->Cancel(wait);
  Get(*queue, "k", hold(later_gate), kNoDeadline, later.Sink());
  gate.Open();
  // Which others join still, after the end of the one that was given up.
  later_gate.AwaitArrival();
  Get(*queue, "k", hold(later_gate), kNoDeadline, later.Sink());
  later_gate.Open();
  const auto program = later.Next();
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(Find("k"), *program);
  EXPECT_TRUE(later.Next().ok());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(left.size(), 1u);
}

}  // namespace
}  // namespace weir
