// Works that nobody waits for any more: on the CPU they give up their thread
// before the next step or the next piece of one, and do not take one if they
// have none.
#include <gtest/gtest.h>

#include <atomic>

#include "kernels/base/clock.h"
#include "kernels/ops/op.h"
#include "kernels/ops/parallel_for.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

// An operator of one input and one output of its shape, whose kernel is `run`.
void Register(OpRegistry& registry, const char* name, const char* doc,
              const RunFunction& run,
              decltype(OpDef::digest) digest = nullptr) {
  OpDef def;
  def.digest = digest;
  def.host_inputs = digest == nullptr ? 0 : 1;
  def.domain = "weir";
  def.name = name;
  def.doc = doc;
  def.inputs = {{.name = "input", .types = kFixedTypes}};
  def.outputs = {{.name = "output"}};
  def.infer = [](InferContext& context) {
    context.SetOutput(0, DType::kFloat, context.input_shape(0));
    return absl::OkStatus();
  };
  def.cost = [](const NodeInfo&, Pace, const PlanArgs&) { return NodeCost(); };
  const absl::Status registered =
      registry.Register(std::move(def), [run](const NodeInfo&, Device&) {
        return absl::StatusOr<std::unique_ptr<const Kernel>>(
            MakeKernel([run](const PlanArgs&) {
              return absl::StatusOr<RunFunction>(run);
            }));
      });
  ASSERT_TRUE(registered.ok()) << registered;
}

class Abandoned : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    Register(*registry_, "Hold", "Stands still until the test lets it go on.",
             [this](const RunArgs&) {
               started_.Set();
               if (holds_) open_->Wait();
               return absl::OkStatus();
             });
    Graph graph = MakeGraph("Hold", 1, {}, "weir");
    for (int i = 0; i < 2; ++i) {
      GraphNode next = graph.nodes.back();
      next.name += "_next";
      next.inputs = next.outputs;
      next.outputs = {next.outputs[0] + "_next"};
      graph.nodes.push_back(next);
    }
    graph.outputs = graph.nodes.back().outputs;
    program_ = Compile(std::move(graph));
    // With its plan made, a work is launched within Submit.
    holds_ = false;
    WatchedWork first;
    Submit(first);
    ASSERT_TRUE(first.Done().ok());
    ASSERT_EQ(started_.count(), kSteps);
    holds_ = true;
  }

  // In a context of its own. It keeps its result, so that it never runs in this
  // thread.
  void Submit(WatchedWork& watched, Nanos deadline = kNoDeadline) {
    Submit(watched, deadline, values_);
  }
  void Submit(WatchedWork& watched, Nanos deadline,
              const std::vector<float>& values) {
    watched.request().program = program_;
    watched.request().inputs = {Floats(values)};
    watched.request().outputs = {OutputWish::kKeep};
    watched.request().deadline = deadline;
    Enter(NewContext()).Submit(watched.work.get(), &watched.waiter);
  }

  // Every thread that makes plans waits until open_.
  void OccupyPlanThreads() {
    const auto occupied = std::make_shared<Event>();
    const int threads = ProgramCacheOptions().plan_threads;
    for (int64_t i = 0; i < threads; ++i) {
      const std::vector<HostTensor> other = {{DType::kFloat, {4 + i}, nullptr}};
      engine_->programs().MakePlan(
          program_, other, kNoDeadline,
          [open = open_, occupied](const ProgramCache::PlanOr&) {
            occupied->Set();
            open->Wait();
          });
    }
    occupied->Wait(static_cast<size_t>(threads));
  }

  size_t StepsSinceSetUp() const { return started_.count() - kSteps; }
  void AwaitSteps(size_t steps) { started_.Wait(kSteps + steps); }

  static constexpr size_t kSteps = 3;  // of the program

  const std::vector<float> values_ = {1};
  std::shared_ptr<const Program> program_;
  Event started_;  // a step
  std::atomic<bool> holds_{true};
  // Also of who is let through, and may still be there when the test ends.
  const std::shared_ptr<Event> open_ = std::make_shared<Event>();
};
INSTANTIATE_TEST_SUITE_P(Devices, Abandoned, ::testing::Values("cpu"),
                         [](const auto& info) { return info.param; });

TEST_P(Abandoned, ACancelledWorkEndsBeforeItsNextStep) {
  WatchedWork watched;
  Submit(watched);
  AwaitSteps(1);
  watched.work->Cancel();
  open_->Set();
  const absl::Status status = watched.Done();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(StepsSinceSetUp(), 1u);
  // Nothing is wrong with the device or the lane.
  EXPECT_TRUE(watched.work->report().device_errors.empty());
  EXPECT_EQ(engine_->streams().stats().destroyed_total, 0u);
  WatchedWork next;
  Submit(next);
  EXPECT_TRUE(next.Done().ok());
}

TEST_P(Abandoned, AWorkEndsBeforeItsNextStepAfterItsDeadline) {
  // Where a machine is so busy that it passes before the first step, again with
  // a later one.
  for (Nanos patience = 20'000'000; StepsSinceSetUp() == 0; patience *= 2) {
    WatchedWork watched;
    const Nanos deadline = NowNanos() + patience;
    Submit(watched, deadline);
    ASSERT_TRUE(testing::Eventually([&] {
      return NowNanos() >= deadline &&
             (StepsSinceSetUp() > 0 || watched.work->done());
    }));
    if (StepsSinceSetUp() > 0) open_->Set();
    const absl::Status status = watched.Done();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
  EXPECT_EQ(StepsSinceSetUp(), 1u);
}

// Both threads are taken: it is launched, and its strand waits for one.
TEST_P(Abandoned, ALaunchedWorkThatHasNotBegunNeverBegins) {
  WatchedWork running[2];
  for (WatchedWork& watched : running) Submit(watched);
  AwaitSteps(2);
  WatchedWork waiting;
  Submit(waiting);
  // Its lane may have to be made.
  EXPECT_TRUE(testing::Eventually(
      [&] { return engine_->streams().stats().leased == 3; }));
  waiting.work->Cancel();
  open_->Set();
  const absl::Status status = waiting.Done();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  for (WatchedWork& watched : running) EXPECT_TRUE(watched.Done().ok());
  EXPECT_EQ(StepsSinceSetUp(), 2 * kSteps);
}

// No other work holds these back, only the plans before theirs.
TEST_P(Abandoned, AWorkThatWaitsForItsPlanEndsAtOnce) {
  OccupyPlanThreads();
  const std::vector<float> values = {1, 2, 3};
  WatchedWork cancelled;
  Submit(cancelled, kNoDeadline, values);
  EXPECT_EQ(engine_->programs().stats().plans_queued, 1u);
  cancelled.work->Cancel();
  EXPECT_EQ(cancelled.Done().code(), absl::StatusCode::kCancelled);
  WatchedWork late;
  Submit(late, NowNanos() + 20'000'000, values);
  EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(engine_->programs().stats().plans_queued, 0u);
  EXPECT_EQ(StepsSinceSetUp(), 0u);
  open_->Set();
}

// Whom the digest of an input cancels, which a work asks for on its way to the
// plan.
std::atomic<Work*> cancelled_by_digest{nullptr};

TEST_P(Abandoned, AWorkThatIsCancelledAsItAsksForItsPlanEndsAtOnce) {
  Register(
      *registry_, "Digested", "Cancels.",
      [](const RunArgs&) { return absl::OkStatus(); },
      [](const HostTensor&,
         DigestBudget&) -> absl::StatusOr<std::vector<int64_t>> {
        Work* const work = cancelled_by_digest.exchange(nullptr);
        if (work != nullptr) work->Cancel();
        return std::vector<int64_t>{1};
      });
  OccupyPlanThreads();
  WatchedWork cancelled;
  cancelled.request().program = Compile("Digested", 1, {}, "weir");
  cancelled.request().inputs = {Floats(values_)};
  cancelled_by_digest = cancelled.work.get();
  Enter(NewContext()).Submit(cancelled.work.get(), &cancelled.waiter);
  EXPECT_EQ(cancelled_by_digest, nullptr);
  EXPECT_TRUE(testing::Eventually([&] { return cancelled.work->done(); }));
  EXPECT_EQ(engine_->programs().stats().plans_queued, 0u);
  open_->Set();
  EXPECT_EQ(cancelled.Done().code(), absl::StatusCode::kCancelled);
}

// One step of many pieces, each of which holds until the test lets it go on.
class AbandonedInAStep : public EvalTest {
 protected:
  static constexpr int64_t kPieces = 1000;

  void SetUp() override {
    EvalTest::SetUp();
    Register(*registry_, "Pieces", "Runs many pieces over the team.",
             [this](const RunArgs& run) {
               ParallelFor(run.team, kPieces, [this](int64_t) {
                 started_.Set();
                 if (holds_) open_.Wait();
               });
               // What it would say of what the pieces did not do.
               return holds_ ? absl::InternalError("pieces are missing")
                             : absl::OkStatus();
             });
    program_ = Compile(MakeGraph("Pieces", 1, {}, "weir"));
    holds_ = false;
    WatchedWork first;
    Submit(first);
    ASSERT_TRUE(first.Done().ok());
    ASSERT_EQ(started_.count(), static_cast<size_t>(kPieces));
    holds_ = true;
  }

  void Submit(WatchedWork& watched, Nanos deadline = kNoDeadline) {
    watched.request().program = program_;
    watched.request().inputs = {Floats(values_)};
    watched.request().outputs = {OutputWish::kKeep};
    watched.request().deadline = deadline;
    Enter(NewContext()).Submit(watched.work.get(), &watched.waiter);
  }

  const std::vector<float> values_ = {1};
  std::shared_ptr<const Program> program_;
  Event started_;  // a piece
  std::atomic<bool> holds_{true};
  Event open_;
};
INSTANTIATE_TEST_SUITE_P(Devices, AbandonedInAStep, ::testing::Values("cpu"),
                         [](const auto& info) { return info.param; });

TEST_P(AbandonedInAStep, ACancelledWorkBeginsNoFurtherPiece) {
  WatchedWork watched;
  Submit(watched);
  started_.Wait(kPieces + 1);
  watched.work->Cancel();
  open_.Set();
  const absl::Status status = watched.Done();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  // The device has two threads: a piece of each had begun.
  EXPECT_LE(started_.count(), static_cast<size_t>(kPieces) + 2);
  EXPECT_TRUE(watched.work->report().device_errors.empty());
  EXPECT_EQ(engine_->streams().stats().destroyed_total, 0u);
}

TEST_P(AbandonedInAStep, NorDoesOneWhoseDeadlineHasPassed) {
  // Where a machine is so busy that it passes before the first piece, again
  // with a later one.
  const auto begun = [&] { return started_.count() > size_t{kPieces}; };
  for (Nanos patience = 20'000'000; !begun(); patience *= 2) {
    WatchedWork watched;
    const Nanos deadline = NowNanos() + patience;
    Submit(watched, deadline);
    ASSERT_TRUE(testing::Eventually([&] {
      return NowNanos() >= deadline && (begun() || watched.work->done());
    }));
    if (begun()) open_.Set();
    const absl::Status status = watched.Done();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
  EXPECT_LE(started_.count(), static_cast<size_t>(kPieces) + 2);
}

}  // namespace
}  // namespace weir
