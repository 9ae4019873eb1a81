#include "kernels/graph/plan_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/graph/queue_callers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::weir::testing::Answers;
using ::weir::testing::Gate;
using ::weir::testing::Input;
using ::weir::testing::Node;
using Plans = Answers<PlanQueue::PlanOr>;

// A plan of Failing fails for so many rows, and of Held waits at the gate, as
// one of Reading does, for which the input's bytes are read.
constexpr int64_t kFails = 13;

class PlanQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto held = [this, open = open_](const PlanArgs&) {
      planned_.Set();
      open.Pass();
      return absl::OkStatus();
    };
    Define("Held", held);
    Define("Reading", held, /*host_inputs=*/1);
    Define("Failing", [](const PlanArgs& args) {
      return args.inputs[0].dims[0] == kFails
                 ? absl::InvalidArgumentError("no such plan")
                 : absl::OkStatus();
    });
    Define("Both", [this, open = open_](const PlanArgs& args) {
      if (args.inputs[0].dims[0] == kFails) {
        return absl::InvalidArgumentError("no such plan");
      }
      planned_.Set();
      open.Pass();
      return absl::OkStatus();
    });
  }
  void TearDown() override { open_.Open(); }

  void Define(std::string_view name,
              std::function<absl::Status(const PlanArgs&)> plan,
              uint32_t host_inputs = 0) {
    OpDef def;
    def.host_inputs = host_inputs;
    def.name = name;
    def.inputs = {{"X", {DType::kFloat}}};
    def.outputs = {{"Y"}};
    def.infer = testing::SameShape;
    def.cost = LinearCost;
    ASSERT_TRUE(operators_.registry.Register(def).ok());
    ASSERT_TRUE(
        operators_.registry
            .RegisterKernel(
                DeviceKind::kCpu, "", name,
                testing::Factory([plan = std::move(plan)](const PlanArgs& args)
                                     -> absl::StatusOr<RunFunction> {
                  absl::Status planned = plan(args);
                  if (!planned.ok()) return planned;
                  return RunFunction(
                      [](const RunArgs&) { return absl::OkStatus(); });
                }))
            .ok());
  }

  std::shared_ptr<PlanQueue> Make(const PlanQueueOptions& options = {}) {
    return std::make_shared<PlanQueue>(&timers_, options);
  }

  // Of so many nodes one after the other.
  std::shared_ptr<const Program> Compile(const std::string& op,
                                         size_t nodes = 1) {
    Graph graph;
    graph.inputs = {Input("x0", SymbolicDims{Dim()})};
    for (size_t i = 0; i < nodes; ++i) {
      graph.nodes.push_back(
          Node(op, {absl::StrCat("x", i)}, {absl::StrCat("x", i + 1)}));
    }
    graph.outputs = {absl::StrCat("x", nodes)};
    auto program =
        Program::Compile(std::move(graph), *device_, operators_.registry);
    EXPECT_TRUE(program.ok()) << program.status();
    return *std::move(program);
  }

  static std::vector<HostTensor> Rows(int64_t rows) {
    return {{DType::kFloat, {rows}, nullptr}};
  }
  // Asks for the plan of so many rows; it has a while, on a busy machine.
  PlanQueue::WaitId Plan(PlanQueue& queue,
                         const std::shared_ptr<const Program>& program,
                         int64_t rows, Plans& answers,
                         const std::string& owner = "") {
    return queue.Make(program, Rows(rows), NowNanos() + 20'000'000'000,
                      answers.Sink(), owner);
  }
  // Keeps a thread busy with the answer to a plan until `gate` is open.
  void Occupy(PlanQueue& queue, const std::shared_ptr<const Program>& program,
              int64_t rows, const Gate& gate) {
    queue.Make(
        program, Rows(rows), kNoDeadline,
        [gate](const PlanQueue::PlanOr&) { gate.Pass(); }, "");
    gate.AwaitArrival();
  }
  // The thread for dear plans, with the second one of `program`: where nothing
  // is quick the first makes it dear.
  void OccupyWithDear(PlanQueue& queue,
                      const std::shared_ptr<const Program>& program,
                      const Gate& gate) {
    Plans first;
    Plan(queue, program, 1, first);
    ASSERT_TRUE(first.Next().ok());
    Occupy(queue, program, 2, gate);
  }

  testing::TestOperators operators_;
  const std::unique_ptr<Device> device_ = MakeCpuDevice({});
  TimerQueue timers_;
  Event planned_;
  Gate open_;
  Plans held_;
};

TEST_F(PlanQueueTest, MakesPlans) {
  const auto queue = Make();
  const auto program = Compile("Neg");
  Plans answers;
  Plan(*queue, program, 2, answers);
  const auto plan = answers.Next();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(program->FindPlan(Rows(2)), *plan);
}

// -- What is quick and what is dear -------------------------------------------

// Large ones count as dear until one was made.
TEST_F(PlanQueueTest, PlansDoNotWaitBehindThoseOfLargePrograms) {
  const auto queue = Make();
  const auto large = Compile("Neg", kSmallPlanNodes + 1);
  const auto another = Compile("Neg", kSmallPlanNodes + 1);
  Gate open;
  Occupy(*queue, large, 1, open);
  Plans large_answers, answers;
  Plan(*queue, another, 1, large_answers);
  Plan(*queue, Compile("Neg"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(large_answers.size(), 0u);
  EXPECT_EQ(queue->queued(), 1u);
  open.Open();
  EXPECT_TRUE(large_answers.Next().ok());
}

// However few nodes they have.
TEST_F(PlanQueueTest, DearPlansLeaveAThreadToProgramsWhosePlansWereQuick) {
  const auto queue = Make({.quick_plan = absl::InfiniteDuration()});
  const auto quick = Compile("Neg");
  Plans answers;
  Plan(*queue, quick, 1, answers);
  ASSERT_TRUE(answers.Next().ok());
  for (int i = 0; i < 4; ++i) Plan(*queue, Compile("Held"), 1, held_);
  planned_.Wait(2);
  Plan(*queue, quick, 2, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(planned_.count(), 2u);
  EXPECT_EQ(queue->queued(), 2u);
  open_.Open();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(held_.Next().ok());
}

// Others' shapes do not wait behind those of one program, nor do two threads
// make the same plan.
TEST_F(PlanQueueTest, PlansOfOneProgramAreMadeOneAtATime) {
  const auto queue = Make();
  const auto program = Compile("Held");
  for (const int64_t rows : {1, 1, 2, 3}) Plan(*queue, program, rows, held_);
  planned_.Wait();
  Plans answers;
  Plan(*queue, Compile("Neg"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(planned_.count(), 1u);
  EXPECT_EQ(queue->queued(), 3u);
  open_.Open();
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(held_.Next().ok());
  EXPECT_EQ(planned_.count(), 3u);
}

TEST_F(PlanQueueTest, SmallProgramsAreKnownByWhatTheLastPlanTook) {
  const auto queue = Make({.quick_plan = absl::ZeroDuration()});
  const auto dear = Compile("Neg");
  Plans first, answers;
  Gate open;
  OccupyWithDear(*queue, dear, open);
  Plan(*queue, dear, 3, first);
  Plan(*queue, Compile("Neg"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(queue->queued(), 1u);
  open.Open();
  EXPECT_TRUE(first.Next().ok());
}

// One that was refused, however long that took, says what the next may take.
TEST_F(PlanQueueTest, ProgramsAreKnownByWhatAPlanTookThatFailed) {
  const auto queue = Make({.quick_plan = absl::ZeroDuration()});
  const auto failing = Compile("Failing"), dear = Compile("Neg");
  Plans first, answers;
  Plan(*queue, failing, kFails, first);
  EXPECT_FALSE(first.Next().ok());
  Gate open;
  OccupyWithDear(*queue, dear, open);
  Plan(*queue, failing, kFails, first);
  Plan(*queue, Compile("Neg"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(first.size(), 0u);
  EXPECT_EQ(queue->queued(), 1u);
  open.Open();
  EXPECT_FALSE(first.Next().ok());
}

// So is one that its caller gave up.
TEST_F(PlanQueueTest, ProgramsAreKnownByWhatAPlanTookThatWasGivenUp) {
  const auto queue = Make({.quick_plan = absl::ZeroDuration()});
  const auto program = Compile("Held", 2), dear = Compile("Neg");
  const auto wait = Plan(*queue, program, 1, held_);
  planned_.Wait();
  queue->Cancel(wait);
  EXPECT_TRUE(absl::IsCancelled(held_.Next().status()));
  open_.Open();
  ASSERT_TRUE(
      testing::Eventually([&] { return program->failed_plan_ns() > 0; }));
  Plans first, answers;
  Gate open;
  OccupyWithDear(*queue, dear, open);
  Plan(*queue, program, 2, first);
  Plan(*queue, Compile("Neg"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(queue->queued(), 1u);
  open.Open();
  EXPECT_TRUE(first.Next().ok());
}

// Those that wait already, too.
TEST_F(PlanQueueTest, ProgramsAreKnownAnewAsSoonAsAPlanIsMade) {
  const auto queue = Make({.quick_plan = absl::ZeroDuration()});
  const auto program = Compile("Held"), dear = Compile("Neg");
  Plans answers;
  Gate open;
  OccupyWithDear(*queue, dear, open);
  for (const int64_t rows : {1, 2}) Plan(*queue, program, rows, held_);
  planned_.Wait();
  open_.Open();
  EXPECT_TRUE(held_.Next().ok());
  Plan(*queue, Compile("Neg"), 1, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(queue->queued(), 1u);
  EXPECT_EQ(planned_.count(), 1u);
  open.Open();
  EXPECT_TRUE(held_.Next().ok());
}

// By threads that had nothing to do until then, too.
TEST_F(PlanQueueTest, ProgramsThatAreKnownAnewWakeTheThreadForThem) {
  const auto queue = Make({.quick_plan = absl::ZeroDuration()});
  const auto program = Compile("Held"), dear = Compile("Neg");
  Plans first;
  Gate open;
  OccupyWithDear(*queue, dear, open);
  for (const int64_t rows : {1, 2}) Plan(*queue, program, rows, held_);
  planned_.Wait();
  open.Open();
  // Then the thread for all of them finds nothing that it may take.
  Plan(*queue, dear, 3, first);
  ASSERT_TRUE(first.Next().ok());
  EXPECT_EQ(queue->queued(), 1u);
  open_.Open();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(held_.Next().ok());
}

TEST_F(PlanQueueTest, NothingIsKeptOfAProgramThatNobodyWaitsForAnyMore) {
  const auto queue = Make({.quick_plan = absl::InfiniteDuration()});
  const auto large = Compile("Neg", kSmallPlanNodes + 1);
  Gate open;
  Occupy(*queue, Compile("Neg", kSmallPlanNodes + 1), 1, open);
  Plans left, answers;
  queue->Cancel(Plan(*queue, large, 1, left));
  EXPECT_TRUE(absl::IsCancelled(left.Next().status()));
  ASSERT_TRUE(large->MakePlan(Rows(1)).ok());
  // It is known to be quick now.
  Plan(*queue, large, 2, answers);
  EXPECT_TRUE(answers.Next().ok());
  open.Open();
}

// A shape that is refused at once is no promise.
TEST_F(PlanQueueTest, WhatFailsAtOnceIsNotQuick) {
  const auto queue = Make({.quick_plan = absl::InfiniteDuration()});
  const auto program = Compile("Both");
  Plan(*queue, program, kFails, held_);
  EXPECT_FALSE(held_.Next().ok());
  for (int i = 0; i < 2; ++i) Plan(*queue, Compile("Held"), 1, held_);
  planned_.Wait(2);
  Plan(*queue, program, 1, held_);
  // The thread that has nothing to do is for those that were quick.
  const auto quick = Compile("Neg");
  ASSERT_TRUE(quick->MakePlan(Rows(1)).ok());
  Plans answers;
  Plan(*queue, quick, 2, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(queue->queued(), 1u);
  EXPECT_EQ(planned_.count(), 2u);
  open_.Open();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(held_.Next().ok());
}

// -- Owners -------------------------------------------------------------------

// One thread, which is busy with a plan of owner a's while others ask.
class PlanOwners : public PlanQueueTest {
 protected:
  void SetUp() override {
    PlanQueueTest::SetUp();
    queue_ = Make({.max_waiters = 8, .threads = 1});
    shared_ = Compile("Held");
    Plan(*queue_, shared_, 1, held_, "a");
    planned_.Wait();
  }

  void Ask(const std::string& owner, const std::string& name,
           const std::shared_ptr<const Program>& program, int64_t rows) {
    ++asked_;
    queue_->Make(
        program, Rows(rows), kNoDeadline,
        [this, name](const PlanQueue::PlanOr& plan) {
          EXPECT_TRUE(plan.ok()) << plan.status();
          order_.push_back(name);
          told_.Set();
        },
        owner);
  }
  // For a program of its own.
  void Ask(const std::string& owner, const std::string& name) {
    Ask(owner, name, Compile("Neg"), 1);
  }
  absl::Status Refused(const std::string& owner) {
    Plans refused;
    queue_->Make(Compile("Neg"), Rows(1), kNoDeadline, refused.Sink(), owner);
    return refused.size() == 0 ? absl::OkStatus() : refused.Next().status();
  }
  // What was asked for, as it was planned.
  std::vector<std::string> Order() {
    open_.Open();
    told_.Wait(asked_);
    return order_;
  }

  std::shared_ptr<PlanQueue> queue_;
  std::shared_ptr<const Program> shared_;
  size_t asked_ = 0;
  Event told_;
  std::vector<std::string> order_;  // the plan thread's
};

TEST_F(PlanOwners, TakeTurns) {
  for (const char* name : {"a1", "a2", "a3"}) Ask("a", name);
  for (const char* name : {"b1", "b2"}) Ask("b", name);
  Ask("c", "c1");
  EXPECT_THAT(Order(), ElementsAre("b1", "c1", "a1", "b2", "a2", "a3"));
}

// What an owner had made before counts no more.
TEST_F(PlanOwners, BeginAnewWithTheirTurns) {
  open_.Open();
  EXPECT_TRUE(held_.Next().ok());
  Gate busy;
  Occupy(*queue_, Compile("Neg"), 1, busy);
  Ask("a", "a1");
  Ask("b", "b1");
  busy.Open();
  EXPECT_THAT(Order(), ElementsAre("a1", "b1"));
}

// For plans of one program, too.
TEST_F(PlanOwners, TakeTurnsAtAProgramThatTheyShare) {
  for (const int64_t rows : {2, 3, 4}) {
    Ask("a", absl::StrCat("a", rows), shared_, rows);
  }
  Ask("b", "b5", shared_, 5);
  Ask("b", "b1");
  EXPECT_THAT(Order(), ElementsAre("b5", "a2", "b1", "a3", "a4"));
}

TEST_F(PlanOwners, LeaveRoomForOthers) {
  for (const char* name : {"a1", "a2"}) Ask("a", name);
  for (const int64_t rows : {2, 3}) Ask("a", "a", shared_, rows);
  const absl::Status status = Refused("a");
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(Reason(status), "COMPILE_QUEUE_FULL");
  EXPECT_TRUE(RetryAfter(status).has_value());
  for (const char* name : {"b1", "b2"}) Ask("b", name);
  EXPECT_EQ(Reason(Refused("b")), "COMPILE_QUEUE_FULL");
  Ask("c", "c1");
  // Nobody's may be all.
  Ask("", "1");
  EXPECT_EQ(Reason(Refused("d")), "COMPILE_QUEUE_FULL");
  EXPECT_EQ(Order().size(), 8u);
}

// What an owner waits for no more is no part of its share.
TEST_F(PlanOwners, ShareOutWhatIsLeft) {
  std::vector<PlanQueue::WaitId> waits;
  Plans left;
  for (const int64_t rows : {2, 3, 4, 5}) {
    waits.push_back(Plan(*queue_, shared_, rows, left, "a"));
  }
  EXPECT_EQ(Reason(Refused("a")), "COMPILE_QUEUE_FULL");
  for (const PlanQueue::WaitId wait : waits) queue_->Cancel(wait);
  EXPECT_EQ(queue_->queued(), 0u);
  for (const char* name : {"a1", "a2", "a3", "a4"}) Ask("a", name);
  EXPECT_THAT(Order(), ElementsAre("a1", "a2", "a3", "a4"));
}

// -- Ends ---------------------------------------------------------------------

TEST_F(PlanQueueTest, PlansAreNotMadeForWhoeverLeft) {
  const auto queue = Make({.threads = 1});
  const auto program = Compile("Neg");
  Gate open;
  Occupy(*queue, program, 1, open);
  Plans answers;
  queue->Make(program, Rows(2), NowNanos(), answers.Sink(), "");
  EXPECT_EQ(answers.Next().status().code(),
            absl::StatusCode::kDeadlineExceeded);
  queue->Cancel(Plan(*queue, program, 3, answers));
  EXPECT_EQ(answers.Next().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(queue->queued(), 0u);
  open.Open();
  Plan(*queue, program, 4, answers);
  EXPECT_TRUE(answers.Next().ok());
  EXPECT_EQ(program->FindPlan(Rows(2)), nullptr);
  EXPECT_EQ(program->FindPlan(Rows(3)), nullptr);
  EXPECT_EQ(answers.size(), 0u);
}

// Whether the plan is being made or waits for a thread.
TEST_F(PlanQueueTest, NobodyWaitsForEver) {
  const auto queue = Make({.threads = 1, .max_wait = absl::Milliseconds(1)});
  const auto wait_for = [&](const char* op) {
    Plans answers;
    queue->Make(Compile(op), Rows(1), kNoDeadline, answers.Sink(), "");
    const absl::Status status = answers.Next().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Reason(status), "COMPILE_WAIT_TOO_LONG");
  };
  while (planned_.count() == 0) wait_for("Held");
  wait_for("Neg");
  EXPECT_EQ(queue->queued(), 0u);
  open_.Open();
}

// Whoever is told may free what its plan is made from.
TEST_F(PlanQueueTest, WhoeverLeavesIsToldWhenTheirBytesAreReadNoMore) {
  const auto queue = Make();
  const auto program = Compile("Reading");
  ASSERT_TRUE(program->InputOnHost(0));
  const float bytes = 1;
  Plans answers;
  const auto wait = queue->Make(program, {{DType::kFloat, {1}, &bytes}},
                                kNoDeadline, answers.Sink(), "");
  planned_.Wait();
  queue->Cancel(wait);
  EXPECT_EQ(answers.size(), 0u);
  open_.Open();
  EXPECT_TRUE(absl::IsCancelled(answers.Next().status()));
}

TEST_F(PlanQueueTest, StopTellsEverybody) {
  const auto queue = Make({.threads = 1});
  const auto program = Compile("Held", 2);
  Plans running, waiting;
  Plan(*queue, program, 1, running);
  planned_.Wait();
  Plan(*queue, program, 2, waiting);
  std::thread stop([&] { queue->Stop(); });
  EXPECT_EQ(waiting.Next().status().code(), absl::StatusCode::kCancelled);
  open_.Open();
  stop.join();
  // It ends at its next step.
  EXPECT_EQ(running.Next().status().code(), absl::StatusCode::kCancelled);
  Plan(*queue, program, 3, waiting);
  EXPECT_EQ(waiting.Next().status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace weir
