#include "server/spaces/space_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/graph/graph_bytes.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/await_point.h"
#include "tests/eval/hand_executor.h"
#include "tests/spaces/space_fixture.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Until = SpaceWork::Until;

class SpaceWorkTest : public SpaceEngineTest {
 protected:
  void SetUp() override {
    SpaceEngineTest::SetUp();
    OpenWithRoomFor(Holding::kInputBytes);
  }
  void TearDown() override {
    hold_.Open();
    space_ = SpaceUse();
    spaces_ = nullptr;
    SpaceEngineTest::TearDown();
  }

  SpaceUse NewSpace(const Amounts& quota) {
    auto use = spaces_->Open(WishOf("CN=me", 0, quota), NowNanos(), 0);
    EXPECT_TRUE(use.ok()) << use.status();
    return *std::move(use);
  }
  SpaceUse NewSpace(Holding what, uint64_t most) {
    Amounts quota;
    quota[what] = most;
    return NewSpace(quota);
  }

  // A space among others that may have a mebibyte of it.
  void OpenWithRoomFor(Holding what) {
    SpacesOptions options = TestSpaces();
    for (Amounts* amounts :
         {&options.space, &options.identity, &options.server}) {
      (*amounts)[what] = size_t{1} << 20;
    }
    space_ = SpaceUse();
    spaces_ = std::make_unique<Spaces>(options);
    space_ = NewSpace({});
  }

  std::shared_ptr<KeptTensor> Tensor(uint64_t number) {
    auto tensor = space_->tensors().Find(number);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return *std::move(tensor);
  }

  // Works of `program` over values_, or over a kept tensor.
  std::shared_ptr<SpaceWork> Maker(std::shared_ptr<const Program> program,
                                   uint64_t number) {
    auto work = NewWork(space_, std::move(program), number);
    work->request().inputs[0] = Floats(values_);
    return work;
  }
  std::shared_ptr<SpaceWork> Reader(uint64_t of, uint64_t number = 0) {
    auto work = NewWork(space_, negate_, number);
    const absl::Status read =
        work->Read(&work->request().inputs[0], Tensor(of), *engine_);
    EXPECT_TRUE(read.ok()) << read;
    return work;
  }
  // Of `values`, into tensor `number`.
  std::shared_ptr<SpaceWork> Writer(std::shared_ptr<const Program> program,
                                    uint64_t number,
                                    const std::vector<float>& values) {
    auto work = NewWork(space_, std::move(program));
    work->request().inputs[0] = Floats(values);
    work->request().outputs = {OutputWish::kKeep};
    const absl::Status into = work->WriteInto(0, number, *engine_);
    EXPECT_TRUE(into.ok()) << into;
    return work;
  }
  // Accepted, and held on the device.
  std::shared_ptr<SpaceWork> HeldWriter(TestCaller& caller, uint64_t number) {
    auto work = Writer(held_, number, values_);
    const absl::Status accepted = Submit(work, caller);
    EXPECT_TRUE(accepted.ok()) << accepted;
    hold_.WaitUntilHeld();
    return work;
  }
  // Runs it to its end.
  absl::Status Run(const std::shared_ptr<SpaceWork>& work) {
    TestCaller caller;
    const absl::Status accepted = Submit(work, caller);
    if (!accepted.ok()) return accepted;
    caller.ready.Wait();
    return work->work().status();
  }
  // Accepted, and held on the device.
  std::shared_ptr<SpaceWork> Held(TestCaller& caller, uint64_t number,
                                  Until until = Until::kDone,
                                  uint64_t work_number = 0) {
    auto work = Maker(held_, number);
    if (work_number != 0) {
      const absl::Status numbered = work->SetNumber(work_number);
      EXPECT_TRUE(numbered.ok()) << numbered;
    }
    const absl::Status accepted = Submit(work, caller, until);
    EXPECT_TRUE(accepted.ok()) << accepted;
    hold_.WaitUntilHeld();
    return work;
  }
  uint64_t HeldOf(Holding what) { return space_->account().held(what); }

  std::unique_ptr<Spaces> spaces_;
  SpaceUse space_;
};

TEST_F(SpaceWorkTest, LaterWorksReadWhatOneKept) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  EXPECT_EQ(Tensor(1)->dims(), Dims({3}));
  EXPECT_EQ(Tensor(1)->dtype(), DType::kFloat);
  EXPECT_TRUE(Tensor(1)->made().is_null());
  for (int times = 0; times < 2; ++times) {
    const auto reader = Reader(1);
    ASSERT_TRUE(Run(reader).ok());
    EXPECT_EQ(Result(reader->work()), values_);
  }
}

TEST_F(SpaceWorkTest, AChainNeedsNoOnesEnd) {
  TestCaller first, second, third;
  const auto held = Held(first, 1);
  EXPECT_EQ(Tensor(1)->dims(), std::nullopt);
  EXPECT_FALSE(Tensor(1)->made().Outcome().has_value());
  const auto middle = Reader(1, 2);
  ASSERT_TRUE(Submit(middle, second).ok());
  const auto last = Reader(2);
  ASSERT_TRUE(Submit(last, third).ok());
  EXPECT_EQ(third.ready.count(), 0u);
  hold_.Open();
  third.ready.Wait();
  EXPECT_EQ(last->work().status(), absl::OkStatus());
  EXPECT_EQ(Result(last->work()), values_);
}

TEST_F(SpaceWorkTest, ItsNumbersAreClaimedAtOnceAndStandForSomethingLater) {
  TestCaller caller;
  {
    const auto work = Maker(negate_, 1);
    ASSERT_TRUE(work->SetNumber(9).ok());
    EXPECT_EQ(Reason(space_->tensors().Find(1).status()), "TENSOR_NOT_FOUND");
    EXPECT_EQ(Reason(space_->works().Find(9).status()), "WORK_NOT_FOUND");
    const auto other = NewWork(space_, negate_);
    EXPECT_EQ(Reason(other->Keep(0, 1, *engine_)), "NUMBER_IN_USE");
    EXPECT_EQ(Reason(other->SetNumber(9)), "NUMBER_IN_USE");
    ASSERT_TRUE(Submit(work, caller).ok());
    EXPECT_TRUE(space_->tensors().Find(1).ok());
    EXPECT_TRUE(space_->works().Find(9).ok());
    caller.ready.Wait();
  }
  EXPECT_TRUE(space_->tensors().Find(1).ok());
  EXPECT_TRUE(space_->works().Find(9).ok());
}

TEST_F(SpaceWorkTest, AWorkThatIsNeverSubmittedLeavesNothing) {
  {
    const auto work = Maker(negate_, 1);
    ASSERT_TRUE(work->SetNumber(9).ok());
    EXPECT_EQ(HeldOf(Holding::kWorks), 1u);
    EXPECT_EQ(HeldOf(Holding::kTensors), 1u);
  }
  EXPECT_EQ(HeldOf(Holding::kWorks), 0u);
  EXPECT_EQ(HeldOf(Holding::kTensors), 0u);
  EXPECT_TRUE(space_->tensors().Take(1).ok());
  EXPECT_TRUE(space_->works().Take(9).ok());
}

TEST_F(SpaceWorkTest, ARefusedWorkLeavesItsNumbersFree) {
  const auto context = EvalContext::Create(engine_.get(), {.max_pending = 1});
  TestCaller first, second;
  const auto held = Maker(held_, 1);
  ASSERT_TRUE(SubmitIn(context, held, first).ok());
  hold_.WaitUntilHeld();
  {
    const auto refused = Maker(negate_, 2);
    ASSERT_TRUE(refused->SetNumber(9).ok());
    const absl::Status full = SubmitIn(context, refused, second);
    EXPECT_EQ(Reason(full), "CONTEXT_FULL");
    EXPECT_EQ(second.ready.count(), 0u);
    const absl::Status again =
        SubmitIn(context, Maker(negate_, 3), second, Until::kReturned);
    EXPECT_EQ(Reason(again), "CONTEXT_FULL");
    EXPECT_EQ(second.ready.count(), 0u);
    EXPECT_FALSE(space_->tensors().Find(2).ok());
    EXPECT_FALSE(space_->works().Find(9).ok());
  }
  EXPECT_TRUE(space_->tensors().Take(2).ok());
  EXPECT_TRUE(space_->works().Take(9).ok());
  EXPECT_EQ(HeldOf(Holding::kWorks), 1u);
  EXPECT_EQ(HeldOf(Holding::kTensors), 1u);
  hold_.Open();
  first.ready.Wait();
}

TEST_F(SpaceWorkTest, AClosedSpaceTakesNoWork) {
  const auto work = Maker(negate_, 1);
  ASSERT_TRUE(spaces_->Close(*space_));
  TestCaller caller;
  const absl::Status closed = Submit(work, caller);
  EXPECT_EQ(closed.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Reason(closed), "SPACE_NOT_FOUND");
  EXPECT_EQ(caller.ready.count(), 0u);
  EXPECT_EQ(Reason(NewWork(space_, negate_)->Keep(0, 2, *engine_)),
            "SPACE_NOT_FOUND");
}

TEST_F(SpaceWorkTest, WhatReadsAFailedTensorInheritsItsFailure) {
  EXPECT_EQ(Reason(Run(Maker(fault_, 1))), "INJECTED_FAULT");
  const auto tensor = Tensor(1);
  EXPECT_EQ(Reason(tensor->failure()), "INJECTED_FAULT");
  EXPECT_EQ(tensor->dims(), std::nullopt);
  const auto reader = NewWork(space_, negate_, 2);
  const absl::Status read =
      reader->Read(&reader->request().inputs[0], tensor, *engine_);
  EXPECT_EQ(read.code(), tensor->failure().code());
  EXPECT_EQ(Reason(read), "INJECTED_FAULT");
  EXPECT_THAT(std::string(read.message()), HasSubstr("has failed"));
}

TEST_F(SpaceWorkTest, AWorkFailsWithWhatItWaitsFor) {
  TestCaller first, second;
  const auto after = std::make_shared<Timeline>("theirs");
  const auto maker = Maker(fault_, 1);
  maker->request().after = {Point{after, 1}};
  ASSERT_TRUE(Submit(maker, first).ok());
  const auto reader = Reader(1, 2);
  ASSERT_TRUE(Submit(reader, second).ok());
  ASSERT_TRUE(after->Advance(1).ok());
  second.ready.Wait();
  EXPECT_EQ(Reason(reader->work().status()), "INJECTED_FAULT");
  EXPECT_EQ(Reason(Tensor(2)->failure()), "INJECTED_FAULT");
  first.ready.Wait();
}

TEST_F(SpaceWorkTest, TheNumberOfAFailedTensorIsFreeAgain) {
  EXPECT_EQ(Reason(Run(Maker(fault_, 1))), "INJECTED_FAULT");
  EXPECT_EQ(HeldOf(Holding::kTensors), 1u);
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  EXPECT_EQ(HeldOf(Holding::kTensors), 1u);
  const auto reader = Reader(1);
  ASSERT_TRUE(Run(reader).ok());
  EXPECT_EQ(Result(reader->work()), values_);
}

TEST_F(SpaceWorkTest, AFreedTensorStaysForTheWorksThatReadIt) {
  TestCaller first, second;
  auto held = Held(first, 1);
  const auto reader = Reader(1);
  ASSERT_TRUE(Submit(reader, second).ok());
  ASSERT_TRUE(space_->tensors().Remove(1).ok());
  EXPECT_EQ(HeldOf(Holding::kTensors), 1u) << "while works have it";
  hold_.Open();
  second.ready.Wait();
  EXPECT_EQ(Result(reader->work()), std::vector<float>({-1, -2, -3}));
  first.ready.Wait();
  held = nullptr;
  EXPECT_TRUE(
      testing::Eventually([&] { return HeldOf(Holding::kTensors) == 0; }));
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 0u);
}

TEST_F(SpaceWorkTest, BytesAreCountedUntilTheTensorIsGone) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 3 * sizeof(float));
  EXPECT_EQ(spaces_->HeldBy("CN=me")[Holding::kTensorBytes], 3 * sizeof(float));
  ASSERT_TRUE(Run(Reader(1, 2)).ok());
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 6 * sizeof(float));
  ASSERT_TRUE(space_->tensors().Remove(1).ok());
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 3 * sizeof(float));
  ASSERT_TRUE(space_->tensors().Remove(2).ok());
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 0u);
}

// Who waits for moments waits for no memory.
TEST_F(SpaceWorkTest, WhoWaitsForItsEndHoldsNoMemory) {
  TestCaller caller;
  auto held = Held(caller, 1, Until::kDone, /*work_number=*/9);
  const Point end = (*space_->works().Find(9))->ended();
  const Point made = Tensor(1)->made();
  hold_.Open();
  caller.ready.Wait();
  ASSERT_TRUE(space_->tensors().Remove(1).ok());
  held = nullptr;
  EXPECT_EQ(end.Outcome(), absl::OkStatus());
  EXPECT_EQ(made.Outcome(), absl::OkStatus());
  EXPECT_TRUE(
      testing::Eventually([&] { return HeldOf(Holding::kTensorBytes) == 0; }));
}

// However early it failed.
TEST_F(SpaceWorkTest, ItsCallerIsToldOfAFailureWhenAllIsSettled) {
  space_ = NewSpace(Holding::kTensorBytes, 1);
  class Settled final : public SpaceWork::Caller {
   public:
    explicit Settled(Account& account) : account_(account) {}
    void Ready() override {
      works = account_.held(Holding::kWorks);
      ready.Set();
    }
    uint64_t works = 1;
    Event ready;

   private:
    Account& account_;
  } caller(space_->account());
  const auto work = Maker(negate_, 1);
  const auto context = EvalContext::Create(engine_.get(), {});
  auto activation = context->Enter(NewHandlerId());
  ASSERT_TRUE(work->Submit(*activation, caller, Until::kReturned).ok());
  caller.ready.Wait();
  EXPECT_EQ(caller.works, 0u);
  EXPECT_EQ(Reason(work->returned().status), "SPACE_QUOTA");
  EXPECT_FALSE(Tensor(1)->failure().ok());
}

TEST_F(SpaceWorkTest, AProgramCountsOnceForAllThatRunIt) {
  OpenWithRoomFor(Holding::kProgramBytes);
  TestCaller first, second;
  const auto one = Maker(held_, 1);
  ASSERT_TRUE(one->HoldProgram().ok());
  const uint64_t bytes = HeldOf(Holding::kProgramBytes);
  EXPECT_GT(bytes, 0u);
  {
    const auto other = Maker(held_, 2);
    ASSERT_TRUE(other->HoldProgram().ok());
    EXPECT_EQ(HeldOf(Holding::kProgramBytes), bytes);
  }
  ASSERT_TRUE(Submit(one, first).ok());
  hold_.WaitUntilHeld();
  EXPECT_EQ(HeldOf(Holding::kProgramBytes), bytes);
  hold_.Open();
  first.ready.Wait();
  EXPECT_EQ(HeldOf(Holding::kProgramBytes), 0u);
  space_ = NewSpace(Holding::kProgramBytes, 1);
  EXPECT_EQ(Reason(Maker(negate_, 1)->HoldProgram()), "SPACE_QUOTA");
}

TEST_F(SpaceWorkTest, TooManyBytesEndTheWorkBeforeItRuns) {
  space_ = NewSpace(Holding::kTensorBytes, 5 * sizeof(float));
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  const auto second = Maker(negate_, 2);
  EXPECT_EQ(Reason(Run(second)), "SPACE_QUOTA");
  EXPECT_EQ(Reason(Tensor(2)->failure()), "SPACE_QUOTA");
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 3 * sizeof(float));
  ASSERT_TRUE(space_->tensors().Remove(1).ok());
  ASSERT_TRUE(Run(Maker(negate_, 2)).ok());
}

TEST_F(SpaceWorkTest, AFailedTensorHoldsNoBytes) {
  EXPECT_EQ(Reason(Run(Maker(fault_, 1))), "INJECTED_FAULT");
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 0u);
}

TEST_F(SpaceWorkTest, TooManyTensorsAreRefused) {
  space_ = NewSpace(Holding::kTensors, 1);
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  const auto work = NewWork(space_, negate_);
  EXPECT_EQ(Reason(work->Keep(0, 2, *engine_)), "SPACE_QUOTA");
  EXPECT_TRUE(space_->tensors().Take(2).ok()) << "and leave the number free";
}

TEST_F(SpaceWorkTest, WorksCountUntilTheyAreDone) {
  space_ = NewSpace(Holding::kWorks, 1);
  TestCaller caller;
  const auto held = Held(caller, 1);
  EXPECT_EQ(HeldOf(Holding::kWorks), 1u);
  EXPECT_EQ(Reason(SpaceWork::Create(space_.shared(), *engine_, "me").status()),
            "SPACE_QUOTA");
  hold_.Open();
  caller.ready.Wait();
  EXPECT_EQ(HeldOf(Holding::kWorks), 0u) << "when its caller is told";
  EXPECT_TRUE(SpaceWork::Create(space_.shared(), *engine_, "me").ok());
}

TEST_F(SpaceWorkTest, ItsCallerIsToldAsItGoesOn) {
  TestCaller caller;
  const auto held = Held(caller, 1);
  EXPECT_EQ(caller.planned.count(), 1u);
  EXPECT_EQ(caller.ready.count(), 0u);
  hold_.Open();
  caller.ready.Wait();
  EXPECT_EQ(caller.ready.count(), 1u);
}

TEST_F(SpaceWorkTest, WhoWaitsForTheReturnIsToldOnceAndThenNothing) {
  TestCaller caller;
  const auto held = Held(caller, 1, Until::kReturned);
  caller.ready.Wait();
  EXPECT_EQ(held->work().done(), false);
  hold_.Open();
  ASSERT_TRUE(testing::Eventually([&] { return held->work().done(); }));
  ASSERT_TRUE(Run(Reader(1)).ok());
  EXPECT_EQ(caller.ready.count(), 1u);
  EXPECT_EQ(caller.planned.count(), 0u);
}

TEST_F(SpaceWorkTest, ItsCallerMayEndItAtItsPlan) {
  const auto work = Maker(negate_, 1);
  TestCaller caller;
  caller.at_plan = absl::ResourceExhaustedError("no room for the reply");
  ASSERT_TRUE(Submit(work, caller).ok());
  caller.ready.Wait();
  EXPECT_EQ(work->work().status().message(), "no room for the reply");
  EXPECT_FALSE(Tensor(1)->failure().ok());
}

TEST_F(SpaceWorkTest, ANumberedWorkTellsHowFarItIsAndHowItEnded) {
  TestCaller caller;
  const auto held = Held(caller, 1, Until::kDone, /*work_number=*/9);
  const auto kept = *space_->works().Find(9);
  EXPECT_LT(kept->state(), WorkState::kCompleted);
  EXPECT_EQ(&kept->device(), &engine_->device());
  EXPECT_FALSE(kept->end().has_value());
  const Point point = kept->ended();
  EXPECT_FALSE(point.Outcome().has_value());
  hold_.Open();
  caller.ready.Wait();
  EXPECT_EQ(kept->state(), WorkState::kCompleted);
  EXPECT_TRUE(kept->ended().is_null());
  ASSERT_TRUE(kept->end().has_value());
  EXPECT_EQ(kept->end()->status, absl::OkStatus());
  EXPECT_EQ(kept->end()->report.state, WorkState::kCompleted);
  EXPECT_EQ(point.Outcome(), absl::OkStatus());

  const auto faulty = Maker(fault_, 2);
  ASSERT_TRUE(faulty->SetNumber(10).ok());
  EXPECT_FALSE(Run(faulty).ok());
  const auto failed = *space_->works().Find(10);
  EXPECT_EQ(failed->state(), WorkState::kError);
  EXPECT_EQ(Reason(failed->end()->status), "INJECTED_FAULT");
}

TEST_F(SpaceWorkTest, AKeptWorkCanBeCancelled) {
  TestCaller first, second;
  const auto held = Held(first, 1);
  const auto waits = Reader(1, 2);
  ASSERT_TRUE(waits->SetNumber(9).ok());
  ASSERT_TRUE(Submit(waits, second).ok());
  (*space_->works().Find(9))->Cancel();
  second.ready.Wait();
  EXPECT_EQ(waits->work().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Tensor(2)->failure().code(), absl::StatusCode::kCancelled);
  hold_.Open();
  first.ready.Wait();
}

TEST_F(SpaceWorkTest, ClosingTheSpaceCancelsItsWorks) {
  TestCaller first, second, third;
  auto held = Held(first, 1);
  const auto waits = Reader(1, 2);
  ASSERT_TRUE(Submit(waits, second).ok());
  // And one that would wait for a timeline of the space for ever.
  const auto timeline = std::make_shared<Timeline>("theirs");
  ASSERT_TRUE(space_->timelines().Take(5)->Fill(
      std::make_shared<KeptTimeline>(KeptTimeline{timeline, {}})));
  const auto parked = Maker(negate_, 3);
  parked->request().after = {Point{timeline, 1}};
  ASSERT_TRUE(Submit(parked, third).ok());
  ASSERT_TRUE(spaces_->Close(*space_));
  for (TestCaller* told : {&second, &third}) {
    ASSERT_TRUE(testing::Eventually([&] { return told->ready.count() == 1; }));
  }
  EXPECT_EQ(waits->work().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(parked->work().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(first.ready.count(), 0u) << "what runs drains";
  hold_.Open();
  first.ready.Wait();
  held = nullptr;
  for (const Holding what :
       {Holding::kTensors, Holding::kTensorBytes, Holding::kWorks}) {
    EXPECT_TRUE(testing::Eventually([&] { return HeldOf(what) == 0; }));
  }
}

// -- Deferred works -----------------------------------------------------------

class DeferredSpaceWorkTest : public SpaceWorkTest {
 protected:
  void SetUp() override {
    SpaceWorkTest::SetUp();
    context_ = EvalContext::Create(engine_.get(), {});
  }
  void TearDown() override {
    context_ = nullptr;
    SpaceWorkTest::TearDown();
  }

  // Accepted; it brings its graph, so that it may be joined with others.
  void Defer(const std::shared_ptr<SpaceWork>& work) {
    work->request().mode = EvalMode::kDeferred;
    work->request().graph = std::make_shared<const Graph>(MakeGraph("Neg", 1));
    TestCaller caller;
    const absl::Status accepted =
        SubmitIn(context_, work, caller, Until::kReturned);
    ASSERT_TRUE(accepted.ok()) << accepted;
    ASSERT_EQ(caller.ready.count(), 1u);
    EXPECT_EQ(work->returned().status, absl::OkStatus());
    EXPECT_EQ(work->returned().report.state, WorkState::kNotEnqueued);
    EXPECT_EQ(work->work().state(), WorkState::kNotEnqueued);
  }
  FlushResult Flush() { return context_->Enter(NewHandlerId())->Flush(); }
  void Free(uint64_t number) {
    auto tensor = space_->tensors().Remove(number);
    ASSERT_TRUE(tensor.ok());
    (*tensor)->Freed();
  }
  absl::Status Await(const Point& point) {
    return testing::AwaitPoint(*engine_, point);
  }

  std::shared_ptr<EvalContext> context_;
};

TEST_F(DeferredSpaceWorkTest, RunsWhenItsTensorIsRead) {
  const auto maker = Maker(negate_, 1);
  maker->request().deadline = NowNanos();  // its call's, and over
  Defer(maker);
  const auto reader = Reader(1);
  ASSERT_TRUE(Run(reader).ok());
  EXPECT_EQ(Result(reader->work()), values_);
  EXPECT_EQ(maker->work().status(), absl::OkStatus());
}

TEST_F(DeferredSpaceWorkTest, RunsWhenItsNumberIsWaitedFor) {
  const auto maker = Maker(negate_, 1);
  ASSERT_TRUE(maker->SetNumber(7).ok());
  Defer(maker);
  auto kept = space_->works().Find(7);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ((*kept)->state(), WorkState::kNotEnqueued);
  EXPECT_EQ(Await((*kept)->ended()), absl::OkStatus());
  EXPECT_EQ((*kept)->state(), WorkState::kCompleted);
}

TEST_F(DeferredSpaceWorkTest, RunsForOneThatAnotherContextReads) {
  Defer(Maker(negate_, 1));
  Defer(Reader(1, 2));
  ASSERT_TRUE(Run(Reader(2, 3)).ok());
  EXPECT_EQ(Tensor(1)->dims(), Dims({3}));
  EXPECT_TRUE(Flush().executed.empty());
}

TEST_F(DeferredSpaceWorkTest, IsSkippedOnceItsTensorIsFreed) {
  const auto maker = Maker(negate_, 1);
  ASSERT_TRUE(maker->SetNumber(7).ok());
  Defer(maker);
  Free(1);
  EXPECT_EQ(HeldOf(Holding::kWorks), 1u);
  const FlushResult result = Flush();
  ASSERT_EQ(result.dropped.size(), 1u);
  EXPECT_EQ(result.dropped[0].tag, 7u);
  auto kept = space_->works().Find(7);
  ASSERT_TRUE(kept.ok());
  EXPECT_TRUE(absl::IsCancelled((*kept)->end()->status));
  for (const Holding what : {Holding::kTensors, Holding::kWorks}) {
    EXPECT_EQ(HeldOf(what), 0u);
  }
}

TEST_F(DeferredSpaceWorkTest, ItsGraphCountsUntilItIsDone) {
  const uint64_t values = values_.size() * sizeof(float);
  const size_t graph = GraphBytes(MakeGraph("Neg", 1));
  const auto maker = Maker(negate_, 1);
  Defer(maker);
  const uint64_t one = HeldOf(Holding::kInputBytes);
  EXPECT_GE(one, values + graph);
  Defer(Maker(negate_, 2));
  EXPECT_EQ(HeldOf(Holding::kInputBytes), 2 * one);
  const Point first = Tensor(1)->made(), second = Tensor(2)->made();
  Flush();
  EXPECT_EQ(Await(first), absl::OkStatus());
  EXPECT_EQ(Await(second), absl::OkStatus());
  EXPECT_EQ(HeldOf(Holding::kInputBytes), 0u);
  EXPECT_EQ(maker->request().graph, nullptr) << "whoever holds the work";
}

// A reader that is skipped itself wants nothing.
TEST_F(DeferredSpaceWorkTest, AChainIsSkippedOnceAllOfItIsFreed) {
  Defer(Maker(negate_, 1));
  Defer(Reader(1, 2));
  Defer(Reader(2, 3));
  Free(1);
  Free(3);
  FlushResult result = Flush();
  EXPECT_EQ(result.dropped.size(), 1u);
  EXPECT_EQ(result.executed.size(), 2u) << "tensor 2 is there to be read";
  ASSERT_TRUE(Run(Reader(2)).ok());
  Defer(Maker(negate_, 4));
  Defer(Reader(4, 5));
  Free(4);
  Free(5);
  result = Flush();
  EXPECT_EQ(result.dropped.size(), 2u);
  EXPECT_TRUE(result.executed.empty());
}

// Who waits for its end holds nothing else of it, and what runs it may come
// after a flush.
TEST_F(DeferredSpaceWorkTest, IsNotSkippedOnceItsEndIsWaitedFor) {
  HandExecutor executor;
  context_ = EvalContext::Create(engine_.get(), {.executor = &executor});
  const auto maker = Maker(negate_, 1);
  ASSERT_TRUE(maker->SetNumber(7).ok());
  Defer(maker);
  const Point end = (*space_->works().Find(7))->ended();
  absl::Status told = absl::UnknownError("not told");
  Event was_told;
  end.timeline->OnReached(end.value, [&](absl::Status how) {
    told = std::move(how);
    was_told.Set();
  });
  Free(1);
  const FlushResult result = Flush();
  EXPECT_TRUE(result.dropped.empty());
  EXPECT_EQ(result.executed.size(), 1u);
  EXPECT_TRUE(testing::Eventually([&] {
    executor.RunAll();
    return was_told.count() > 0;
  }));
  EXPECT_EQ(told, absl::OkStatus());
  context_ = nullptr;
  executor.RunAll();
}

TEST_F(DeferredSpaceWorkTest, WhoIsToldOfItsEndDoesNotHaveItRun) {
  const auto maker = Maker(negate_, 1);
  ASSERT_TRUE(maker->SetNumber(7).ok());
  Defer(maker);
  const auto kept = *space_->works().Find(7);
  Event told;
  uint64_t works = 1;
  kept->OnEnded([&] {
    works = HeldOf(Holding::kWorks);
    told.Set();
  });
  const FlushResult result = Flush();
  EXPECT_EQ(result.executed.size(), 1u) << "nobody had it run before";
  told.Wait();
  EXPECT_EQ(works, 0u) << "it is told when all is settled";
  EXPECT_TRUE(kept->end().has_value());
  Event again;
  kept->OnEnded([&] { again.Set(); });
  EXPECT_EQ(again.count(), 1u);
}

// It was looked up before it was freed.
TEST_F(DeferredSpaceWorkTest, RunsForACallThatIsAboutToReadIt) {
  Defer(Maker(negate_, 1));
  const auto tensor = Tensor(1);
  auto holds = tensor->Hold();
  EXPECT_NE(holds, nullptr);
  Free(1);
  EXPECT_EQ(Flush().executed.size(), 1u);
  const auto reader = NewWork(space_, negate_);
  ASSERT_TRUE(
      reader->Read(&reader->request().inputs[0], tensor, *engine_).ok());
  EXPECT_TRUE(Run(reader).ok());
}

TEST_F(DeferredSpaceWorkTest, IsNotReadOnceItIsFreedAndSkipped) {
  Defer(Maker(negate_, 1));
  const auto tensor = Tensor(1);
  Free(1);
  EXPECT_EQ(Flush().dropped.size(), 1u);
  EXPECT_EQ(tensor->Hold(), nullptr);
  const auto reader = NewWork(space_, negate_);
  EXPECT_TRUE(absl::IsCancelled(
      reader->Read(&reader->request().inputs[0], tensor, *engine_)));
}

TEST_F(DeferredSpaceWorkTest, TensorsOfAJoinedRunCount) {
  Defer(Maker(negate_, 1));
  Defer(Reader(1, 2));
  Defer(Reader(2, 3));
  Free(2);
  Flush();
  ASSERT_TRUE(Run(Reader(3)).ok());
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 2 * 3 * sizeof(float))
      << "what only others of the run read takes nothing";
}

// What does not fit of a joined run fails alone.
TEST_F(DeferredSpaceWorkTest, AJoinedRunKeepsToTheQuota) {
  space_ = NewSpace(Holding::kTensorBytes, 3 * sizeof(float));
  Defer(Maker(negate_, 1));
  Defer(Reader(1, 2));
  Flush();
  EXPECT_EQ(Await(Tensor(1)->made()), absl::OkStatus());
  const Point made = Tensor(2)->made();
  if (!made.is_null()) Await(made).IgnoreError();
  EXPECT_EQ(Reason(Tensor(2)->failure()), "SPACE_QUOTA");
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 3 * sizeof(float));
}

TEST_F(DeferredSpaceWorkTest, EndsWithItsSpace) {
  const auto maker = Maker(negate_, 1);
  Defer(maker);
  ASSERT_TRUE(spaces_->Close(*space_));
  EXPECT_TRUE(testing::Eventually([&] { return maker->work().done(); }));
  EXPECT_TRUE(absl::IsCancelled(maker->work().status()));
  EXPECT_TRUE(
      testing::Eventually([&] { return HeldOf(Holding::kWorks) == 0; }));
}

TEST_F(DeferredSpaceWorkTest, EndsWithItsContext) {
  const auto maker = Maker(negate_, 1);
  Defer(maker);
  context_ = nullptr;
  EXPECT_TRUE(absl::IsCancelled(maker->work().status()));
  EXPECT_TRUE(absl::IsCancelled(Tensor(1)->failure()));
}

// Writers follow one another as they are accepted, whenever they found the
// number; and a reader that was accepted between two reads the first.
TEST_F(SpaceWorkTest, ANumberStandsForTheWriteThatWasAcceptedLast) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  const std::vector<float> twos = {2, 2, 2}, fours = {4, 4, 4};
  const auto late = Writer(negate_, 1, fours);
  const auto early = Writer(negate_, 1, twos);
  ASSERT_TRUE(Run(early).ok());
  const auto reader = Reader(1);
  ASSERT_TRUE(Run(late).ok());
  ASSERT_TRUE(Run(reader).ok());
  EXPECT_EQ(Result(reader->work()), twos);
  const auto last = Reader(1);
  ASSERT_TRUE(Run(last).ok());
  EXPECT_EQ(Result(last->work()), fours);
  EXPECT_EQ(HeldOf(Holding::kTensors), 1u);
}

// A number that was freed, and given to something else, is no writer's.
TEST_F(SpaceWorkTest, AWriteDoesNotReplaceWhatHasItsNumberSince) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  const auto writer = Writer(negate_, 1, values_);
  ASSERT_TRUE(space_->tensors().Remove(1).ok());
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  const auto other = Tensor(1);
  ASSERT_TRUE(Run(writer).ok());
  EXPECT_EQ(Tensor(1), other);
}

// What is made counts until it is there, though its number stands for another
// write by then: no room was left over.
TEST_F(SpaceWorkTest, AWriteBehindOneThatRunsTakesNoneOfItsBytes) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  TestCaller caller;
  const auto runs = HeldWriter(caller, 1);
  const auto next = Writer(negate_, 1, values_);
  const auto last = Writer(negate_, 1, values_);
  ASSERT_TRUE(Run(next).ok());
  ASSERT_TRUE(Run(last).ok());
  const uint64_t bytes = values_.size() * sizeof(float);
  // What was there at first, what is made, and what was written last.
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), 3 * bytes);
  hold_.Open();
  caller.ready.Wait();
}

TEST_F(SpaceWorkTest, RoomCountsOnceAndIsWrittenOnce) {
  const uint64_t bytes = values_.size() * sizeof(float);
  ASSERT_TRUE(space_->tensors().Take(1)->Fill(KeptTensor::Allocate(
      engine_.get(), DType::kFloat, {3},
      *space_->account().Take(Holding::kTensors),
      *space_->account().Take(Holding::kTensorBytes, bytes))));
  const auto first = Writer(negate_, 1, values_);
  const auto second = Writer(negate_, 1, values_);
  ASSERT_TRUE(Run(first).ok());
  EXPECT_EQ(HeldOf(Holding::kTensorBytes), bytes);
  ASSERT_TRUE(Run(second).ok());
  ASSERT_TRUE(Tensor(1)->Commit().ok());
  EXPECT_EQ(HeldOf(Holding::kTensors), 1u);
}

// What is known of a tensor stays known while it is written.
TEST_F(SpaceWorkTest, AWriteKeepsTheShape) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  TestCaller caller;
  const auto runs = HeldWriter(caller, 1);
  EXPECT_FALSE(Tensor(1)->dims().has_value());
  EXPECT_EQ(ToConcrete(Tensor(1)->shape()), Dims({3}));
  const auto other = NewWork(space_, negate_);
  EXPECT_EQ(Reason(other->WriteInto(0, 1, *engine_, ToSymbolic({4}))),
            "TENSOR_MISMATCH");
  EXPECT_EQ(Reason(other->WriteInto(0, 1, *engine_, ToSymbolic({3, 1}))),
            "TENSOR_MISMATCH");
  EXPECT_TRUE(other->WriteInto(0, 1, *engine_, ToSymbolic({3})).ok());
  hold_.Open();
  caller.ready.Wait();
}

// The number of a tensor that failed may be kept anew, or be written into, and
// not both: one of them would be lost.
TEST_F(SpaceWorkTest, TwoOutputsDoNotHaveOneNumber) {
  ASSERT_FALSE(Run(Maker(fault_, 1)).ok());
  const auto writes = Writer(negate_, 1, values_);
  EXPECT_TRUE(absl::IsInvalidArgument(writes->Keep(0, 1, *engine_)));
  EXPECT_TRUE(absl::IsInvalidArgument(writes->WriteInto(0, 1, *engine_)));
  const auto keeps = NewWork(space_, negate_, 2);
  EXPECT_TRUE(absl::IsInvalidArgument(keeps->WriteInto(0, 2, *engine_)));
  EXPECT_TRUE(absl::IsInvalidArgument(keeps->Keep(0, 2, *engine_)));
  // The number is as it was, and what is written there stands for it.
  ASSERT_TRUE(Run(writes).ok());
  EXPECT_TRUE(Tensor(1)->failure().ok());
}

TEST_F(SpaceWorkTest, ATensorOfAnotherEngineIsNotRead) {
  ASSERT_TRUE(Run(Maker(negate_, 1)).ok());
  const std::unique_ptr<Engine> other = NewEngine();
  const auto work = NewWork(space_, negate_);
  const absl::Status status =
      work->Read(&work->request().inputs[0], Tensor(1), *other);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Reason(status), "WRONG_DEVICE");
}

}  // namespace
}  // namespace weir
