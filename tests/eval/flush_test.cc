// What Flush does with deferred works: joined into one graph where they brought
// their graphs, each with results, errors and a report of its own.
#include <gmock/gmock.h>

#include <thread>
#include <utility>

#include "kernels/base/error_info.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/eval/deferred_fixture.h"
#include "tests/eval/hand_executor.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::IsEmpty;

class Flush : public DeferredTest {
 protected:
  // A deferred work is read in another context, and that is read here.
  void ThereAndBack(EvalMode last_mode) {
    Activation here = Enter(NewContext());
    Activation elsewhere = Enter(NewContext());
    const std::vector<float> a = {5};
    Deferred first(this, "Neg", 1), between(this, "Neg", 1);
    Deferred last(this, "Abs", 1);
    first.Read(0, a);
    between.Read(0, first);
    between.request().mode = EvalMode::kEager;
    between.request().deadline = NowNanos() + Nanos{10} * 1'000'000'000;
    last.Read(0, between);
    last.request().mode = last_mode;
    Defer(here, first);
    elsewhere.Submit(between.work.get(), &between.waiter);
    here.Defer(last.work, &last.waiter);
    if (last_mode == EvalMode::kDeferred) here.Flush();
    EXPECT_EQ(between.Done(), absl::OkStatus());
    EXPECT_EQ(last.Done(), absl::OkStatus());
    EXPECT_EQ(first.Done(), absl::OkStatus());
    EXPECT_THAT(Kept(here, last), ElementsAre(5));
  }
};
WEIR_EVAL_ON_EVERY_DEVICE(Flush);

TEST_P(Flush, JoinsAChainIntoOneRun) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, -2}, b = {10, 20};
  Deferred sum(this, "Add", 2), negative(this, "Neg", 1), size(this, "Abs", 1);
  sum.Read(0, a);
  sum.Read(1, b);
  Defer(activation, sum);
  negative.Read(0, sum);
  Defer(activation, negative);
  size.Read(0, negative);
  Defer(activation, size);

  const FlushResult result = activation.Flush();
  EXPECT_THAT(Positions(result.executed), ElementsAre(1, 2, 3));
  for (Deferred* work : {&sum, &negative, &size}) {
    ASSERT_TRUE(work->Done().ok()) << work->work->status();
    EXPECT_EQ(work->work->report().joined_works, 3u);
    EXPECT_EQ(work->work->report().sequence, sum.work->report().sequence)
        << "one place on one stream";
  }
  EXPECT_THAT(Kept(activation, sum), ElementsAre(11, 18));
  EXPECT_THAT(Kept(activation, negative), ElementsAre(-11, -18));
  EXPECT_THAT(Kept(activation, size), ElementsAre(11, 18));
  EXPECT_EQ(engine_->programs().stats().programs, 1u);
}

TEST_P(Flush, EachJoinedWorkWasAcceptedWhenItCame) {
  Activation activation = Enter(NewContext());
  const std::vector<float> a = {1};
  Deferred first(this, "Neg", 1), second(this, "Abs", 1);
  first.Read(0, a);
  second.Read(0, first);
  const Nanos before = NowNanos();
  Defer(activation, first);
  const Nanos between = NowNanos();
  Defer(activation, second);
  const Nanos after = NowNanos();
  activation.Flush();
  for (Deferred* work : {&first, &second}) {
    ASSERT_EQ(work->Done(), absl::OkStatus());
    EXPECT_EQ(work->work->report().joined_works, 2u);
  }
  const Nanos first_at = first.work->report().accepted_at;
  const Nanos second_at = second.work->report().accepted_at;
  EXPECT_GE(first_at, before);
  EXPECT_LE(first_at, between);
  EXPECT_GE(second_at, between);
  EXPECT_LE(second_at, after);
}

TEST_P(Flush, CompilesTheSameChainOnce) {
  auto context = NewContext();
  Activation activation = Enter(context);
  Deferred first(this, "Neg", 1), second(this, "Abs", 1);
  for (int round = 0; round < 3; ++round) {
    const std::vector<float> values = {static_cast<float>(round + 1)};
    first.Read(0, values);
    Defer(activation, first);
    second.Read(0, first);
    Defer(activation, second);
    activation.Flush();
    ASSERT_TRUE(second.Done().ok());
    EXPECT_THAT(Kept(activation, second), ElementsAre(round + 1));
    EXPECT_THAT(Kept(activation, first), ElementsAre(-round - 1));
    for (Deferred* work : {&first, &second}) {
      ASSERT_TRUE(work->Done().ok());
      work->waiter.Reset();
      work->request().inputs.clear();
    }
  }
  EXPECT_EQ(engine_->programs().stats().misses, 1u);
}

TEST_P(Flush, KeepsInsideWhatNobodyElseHolds) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {3};
  Deferred inner(this, "Neg", 1), outer(this, "Neg", 1);
  inner.Read(0, a);
  Defer(activation, inner);
  outer.Read(0, inner);
  Defer(activation, outer);
  inner.work = nullptr;
  const size_t before = engine_->memory().stats().used_bytes;
  activation.Flush();
  ASSERT_TRUE(outer.Done().ok()) << outer.work->status();
  EXPECT_THAT(Kept(activation, outer), ElementsAre(3));
  const size_t one_tensor = engine_->memory().stats().used_bytes - before;
  Deferred alone(this, "Neg", 1);
  alone.Read(0, a);
  Defer(activation, alone);
  activation.Flush();
  ASSERT_TRUE(alone.Done().ok());
  EXPECT_EQ(engine_->memory().stats().used_bytes - before, 2 * one_tensor)
      << "the inner result took no memory of its own";
}

TEST_P(Flush, AnErrorBelongsToOneWorkAndItsReaders) {
  Attributes report;
  report.Set("mode", std::string("report"));
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, 2};
  Deferred good(this, "Neg", 1), bad(this, "Fault", 1, report, "weir"),
      reader(this, "Abs", 1), other(this, "Abs", 1);
  good.Read(0, a);
  bad.Read(0, good);
  bad.request().label = "the bad one";
  reader.Read(0, bad);
  other.Read(0, good);
  for (Deferred* work : {&good, &bad, &reader, &other}) {
    Defer(activation, *work);
  }
  activation.Flush();
  EXPECT_TRUE(good.Done().ok()) << good.work->status();
  EXPECT_EQ(Reason(bad.Done()), "INJECTED_FAULT");
  EXPECT_EQ(Reason(reader.Done()), "INJECTED_FAULT");
  EXPECT_TRUE(other.Done().ok()) << other.work->status();
  EXPECT_THAT(Kept(activation, other), ElementsAre(1, 2));
  const std::vector<FailedWork> failed = activation.Flush().failed;
  ASSERT_EQ(failed.size(), 2u);
  EXPECT_EQ(failed[0].label, "the bad one");
  EXPECT_LT(failed[0].number, failed[1].number);
}

// What it runs itself is told by the next.
TEST_P(Flush, AWorkThatItRunsIsNotAmongThoseThatHaveFailed) {
  Attributes report;
  report.Set("mode", std::string("report"));
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1, 2};
  Deferred bad(this, "Fault", 1, report, "weir"), reader(this, "Abs", 1);
  bad.Read(0, a);
  bad.request().label = "the bad one";
  reader.Read(0, bad);
  Defer(activation, bad);
  ASSERT_EQ(activation.Flush().executed.size(), 1u);
  EXPECT_EQ(Reason(bad.Done()), "INJECTED_FAULT");
  Defer(activation, reader);
  FlushResult result = activation.Flush();
  EXPECT_EQ(result.executed.size(), 1u);
  EXPECT_EQ(result.failed_total, 1u);
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_EQ(result.failed[0].label, "the bad one");
  EXPECT_EQ(Reason(reader.Done()), "INJECTED_FAULT");
  EXPECT_EQ(activation.Flush().failed_total, 1u);
}

// Its executor has not come to that yet.
TEST_P(Flush, ACancelledWorkIsNotAmongThoseThatItRuns) {
  HandExecutor executor;
  auto context = EvalContext::Create(engine_.get(), {.executor = &executor});
  Activation activation = Enter(context);
  const std::vector<float> a = {1, 2};
  Deferred work(this, "Neg", 1);
  work.Read(0, a);
  Defer(activation, work);
  work.work->Cancel();
  EXPECT_TRUE(activation.Flush().executed.empty());
  EXPECT_TRUE(absl::IsCancelled(work.Done()));
  executor.RunAll();
}

TEST_P(Flush, AWrongShapeFailsItsOwnWork) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> two = {1, 2}, three = {1, 2, 3};
  Deferred good(this, "Neg", 1), bad(this, "Add", 2);
  good.Read(0, two);
  bad.Read(0, good);
  bad.Read(1, three);
  Defer(activation, good);
  Defer(activation, bad);
  activation.Flush();
  EXPECT_TRUE(good.Done().ok()) << good.work->status();
  EXPECT_EQ(bad.Done().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(Flush, ACancelledMemberLeavesTheOthers) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {5};
  // Holds the context's queue until the test opens the gate.
  auto gate = std::make_shared<Timeline>("gate");
  WatchedWork held;
  held.request().program = Compile("Neg", 1);
  held.request().inputs = {Floats(a)};
  held.request().outputs = {OutputWish::kKeep};
  held.request().after = {Point{gate, 1}};
  activation.Submit(held.work.get(), &held.waiter);

  Deferred one(this, "Neg", 1), two(this, "Abs", 1);
  one.Read(0, a);
  two.Read(0, a);
  Defer(activation, one);
  Defer(activation, two);
  activation.Flush();
  one.work->Cancel();
  EXPECT_EQ(one.Done().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(held.Done().ok());
  EXPECT_TRUE(two.Done().ok()) << two.work->status();
  EXPECT_THAT(Kept(activation, two), ElementsAre(5));
}

// One by one they wait for nothing that waits for them.
TEST_P(Flush, JoiningMakesNoCircle) { ThereAndBack(EvalMode::kDeferred); }

TEST_P(Flush, WhatWaitsElsewhereComesAfterWhatIsDeferred) {
  ThereAndBack(EvalMode::kEager);
}

// What nobody needs stays, and so does what waits for the one that is run.
TEST_P(Flush, AUseTakesNoMoreThanItNeeds) {
  for (const bool gated : {false, true}) {
    SCOPED_TRACE(gated);
    Activation here = Enter(NewContext());
    auto told = std::make_shared<Timeline>("told");
    auto gate = std::make_shared<Timeline>("gate");
    const std::vector<float> a = {5};
    Deferred first(this, "Neg", 1), waits(this, "Neg", 1);
    Deferred other(this, "Abs", 1), use(this, "Abs", 1);
    first.Read(0, a);
    waits.Read(0, a);
    waits.request().after = {Point{told, 1}};
    other.Read(0, a);
    for (Deferred* work : {&first, &other, &waits}) Defer(here, *work);
    use.Read(0, first);
    use.request().mode = EvalMode::kEager;
    use.request().signal = {{told, 1}};
    use.request().deadline = NowNanos() + Nanos{10} * 1'000'000'000;
    if (gated) use.request().after = {Point{gate, 1}};
    here.Submit(use.work.get(), &use.waiter);
    ASSERT_TRUE(gate->Advance(1).ok());
    EXPECT_EQ(use.Done(), absl::OkStatus());
    EXPECT_EQ(first.Done(), absl::OkStatus());
    EXPECT_FALSE(waits.work->done());
    // Who waits elsewhere may wait for the other one.
    EXPECT_EQ(here.Flush().executed.size(), gated ? 1u : 2u);
    EXPECT_EQ(waits.Done(), absl::OkStatus());
    EXPECT_EQ(other.Done(), absl::OkStatus());
  }
}

// A wait of one work is no wait of another that needs nothing.
TEST_P(Flush, AWorkThatWaitsForAnotherContextWaitsAlone) {
  Activation here = Enter(NewContext());
  Activation elsewhere = Enter(NewContext());
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> a = {5};
  Deferred producer(this, "Neg", 1);
  producer.Read(0, a);
  producer.request().mode = EvalMode::kEager;
  producer.request().after = {Point{gate, 1}};
  elsewhere.Submit(producer.work.get(), &producer.waiter);
  Deferred free(this, "Neg", 1), reader(this, "Abs", 1);
  free.Read(0, a);
  reader.Read(0, producer);
  Defer(here, free);
  Defer(here, reader);
  here.Flush();
  EXPECT_EQ(free.Done(), absl::OkStatus());
  EXPECT_FALSE(reader.work->done());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_EQ(producer.Done(), absl::OkStatus());
  EXPECT_EQ(reader.Done(), absl::OkStatus());
}

// Nobody has to flush for it.
TEST_P(Flush, ADeferredWorkThatNobodyWantsEndsAtOnce) {
  Activation here = Enter(NewContext());
  const std::vector<float> a = {5};
  Deferred cancelled(this, "Neg", 1), late(this, "Neg", 1);
  Deferred later(this, "Neg", 1), stays(this, "Abs", 1);
  Deferred reader(this, "Abs", 1), unread(this, "Neg", 1);
  for (Deferred* work : {&cancelled, &later, &late, &stays, &unread}) {
    work->Read(0, a);
  }
  Defer(here, cancelled);
  reader.Read(0, cancelled);
  Defer(here, reader);
  cancelled.work->Cancel();
  EXPECT_EQ(cancelled.Done().code(), absl::StatusCode::kCancelled);
  late.request().deadline = NowNanos() + 20'000'000;
  later.request().deadline = NowNanos() + 40'000'000;
  for (Deferred* work : {&later, &late, &stays, &unread}) Defer(here, *work);
  EXPECT_EQ(late.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(later.Done().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(stays.work->done());
  // Numbers are not other ones for what has gone.
  unread.work = nullptr;
  const FlushResult flushed = here.Flush();
  EXPECT_THAT(Positions(flushed.executed), ElementsAre(2, 5));
  EXPECT_THAT(Positions(flushed.dropped), ElementsAre(6));
  EXPECT_EQ(reader.Done().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(stays.Done(), absl::OkStatus());
}

// It was cancelled before it was there: by who was told that the call returned.
TEST_P(Flush, AWorkThatIsCancelledAsItReturnsEndsAtOnce) {
  struct Canceler final : WorkObserver {
    void OnReturn(Work& work) override { work.Cancel(); }
    void OnDone(Work& work) override {
      status = work.status();
      done.Set();
    }
    absl::Status status;
    Event done;
  };
  Activation activation = Enter(NewContext());
  const std::vector<float> a = {5};
  Deferred deferred(this, "Neg", 1);
  deferred.Read(0, a);
  Canceler canceler;
  activation.Defer(deferred.work, &canceler);
  canceler.done.Wait();
  EXPECT_TRUE(absl::IsCancelled(canceler.status)) << canceler.status;
}

TEST_P(Flush, WorksMayBeCancelledWhileTheyAreFlushed) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {5};
  Deferred one(this, "Neg", 1), two(this, "Abs", 1), alone(this, "Abs", 1);
  alone.request().graph = nullptr;  // it is not joined
  for (Deferred* work : {&one, &two, &alone}) {
    work->Read(0, a);
    Defer(activation, *work);
  }
  std::thread cancels([&] {
    one.work->Cancel();
    alone.work->Cancel();
  });
  activation.Flush();
  cancels.join();
  for (Deferred* work : {&one, &alone}) {
    const absl::Status status = work->Done();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
  EXPECT_TRUE(two.Done().ok()) << two.work->status();
}

TEST_P(Flush, LaterWorksComeAfterTheJoinedOnes) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {7};
  Deferred one(this, "Neg", 1), two(this, "Neg", 1);
  one.Read(0, a);
  two.Read(0, one);
  Defer(activation, one);
  Defer(activation, two);
  WatchedWork reader;
  reader.request().program = Compile("Neg", 1);
  reader.request().inputs.resize(1);
  reader.request().inputs[0].producer = two.work;
  activation.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Done().ok()) << reader.work->status();
  EXPECT_THAT(Result(*reader.work), ElementsAre(-7));
  EXPECT_EQ(one.work->report().joined_works, 2u)
      << "use by another work joins as Flush does";
  EXPECT_TRUE(one.work->point().Outcome().has_value());
}

TEST_P(Flush, DeferredWorksAreBounded) {
  auto context = NewContext({.max_pending = 1});
  Activation activation = Enter(context);
  const std::vector<float> a = {1};
  Deferred first(this, "Neg", 1), second(this, "Neg", 1);
  first.Read(0, a);
  second.Read(0, a);
  Defer(activation, first);
  activation.Defer(second.work, &second.waiter);
  EXPECT_EQ(Reason(second.Done()), "CONTEXT_FULL");
  activation.Flush();
  EXPECT_TRUE(first.Done().ok());
}

TEST_P(Flush, WhatIsAcceptedIsRunHoweverMuchWaits) {
  auto context = NewContext({.max_pending = 2});
  Activation activation = Enter(context);
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> a = {1};
  WatchedWork waiting[2];
  for (WatchedWork& watched : waiting) {
    watched.request().program = Compile("Neg", 1);
    watched.request().inputs = {Floats(a)};
    watched.request().after = {Point{gate, 1}};
    activation.Submit(watched.work.get(), &watched.waiter);
  }
  Deferred first(this, "Neg", 1), second(this, "Abs", 1), third(this, "Neg", 1);
  for (Deferred* work : {&first, &second, &third}) work->Read(0, a);
  Defer(activation, first);
  Defer(activation, second);
  activation.Flush();
  // Four are unfinished: what is deferred now could not be run.
  activation.Defer(third.work, &third.waiter);
  EXPECT_EQ(Reason(third.Done()), "CONTEXT_FULL");
  ASSERT_TRUE(gate->Advance(1).ok());
  for (WatchedWork* watched :
       {&waiting[0], &waiting[1], static_cast<WatchedWork*>(&first),
        static_cast<WatchedWork*>(&second)}) {
    EXPECT_EQ(watched->Done(), absl::OkStatus());
  }
}

TEST_P(Flush, ARefusedWorkLeavesItsSignalToTheNextAttempt) {
  auto context = NewContext({.max_pending = 1});
  Activation activation = Enter(context);
  auto gate = std::make_shared<Timeline>("gate");
  auto told = std::make_shared<Timeline>("told");
  const std::vector<float> a = {1};
  WatchedWork waiting, refused;
  for (WatchedWork* watched : {&waiting, &refused}) {
    watched->request().program = Compile("Neg", 1);
    watched->request().inputs = {Floats(a)};
    watched->request().outputs = {OutputWish::kKeep};
  }
  waiting.request().after = {Point{gate, 1}};
  refused.request().signal = {{told, 1}};
  activation.Submit(waiting.work.get(), &waiting.waiter);
  activation.Submit(refused.work.get(), &refused.waiter);
  EXPECT_EQ(Reason(refused.Done()), "CONTEXT_FULL");
  EXPECT_TRUE(refused.work->point().is_null());
  EXPECT_EQ(told->Outcome(1), std::nullopt);
  ASSERT_TRUE(gate->Advance(1).ok());
  ASSERT_TRUE(waiting.Done().ok());
  refused.waiter.Reset();
  activation.Submit(refused.work.get(), &refused.waiter);
  EXPECT_EQ(refused.Done(), absl::OkStatus());
  EXPECT_EQ(told->Outcome(1), absl::OkStatus());
}

// Counts what it is told.
struct CountedEnd final : WorkObserver {
  void OnReturn(Work&) override { ++returns; }
  void OnDone(Work& work) override {
    ++ends;
    status = work.status();
    done.Set();
  }
  int returns = 0, ends = 0;
  absl::Status status;
  Event done;
};

TEST_P(Flush, WhatNobodyWaitsForEndsUnrun) {
  auto context = NewContext();
  Activation activation = Enter(context);
  const std::vector<float> a = {1};
  Deferred unread(this, "Neg", 1);
  unread.Read(0, a);
  CountedEnd told;
  activation.Defer(std::exchange(unread.work, nullptr), &told);
  EXPECT_THAT(Positions(activation.Flush().dropped), ElementsAre(1));
  EXPECT_EQ(told.returns, 1);
  EXPECT_EQ(told.ends, 1);
  EXPECT_TRUE(absl::IsCancelled(told.status)) << told.status;
}

// A reader that is given up sets what it reads free. Each flush counts anew.
TEST_P(Flush, AChainThatNobodyReadsEndsUnrun) {
  Activation activation = Enter(NewContext());
  const std::vector<float> a = {1};
  for (const int flush : {1, 2}) {
    SCOPED_TRACE(flush);
    Deferred producer(this, "Neg", 1), reader(this, "Abs", 1);
    producer.Read(0, a);
    reader.Read(0, producer);
    CountedEnd ends[2];
    activation.Defer(std::exchange(producer.work, nullptr), &ends[0]);
    activation.Defer(std::exchange(reader.work, nullptr), &ends[1]);
    const FlushResult result = activation.Flush();
    EXPECT_THAT(Positions(result.dropped), ElementsAre(1, 2));
    EXPECT_THAT(result.executed, IsEmpty());
    for (CountedEnd& told : ends) {
      told.done.Wait();
      EXPECT_TRUE(absl::IsCancelled(told.status)) << told.status;
    }
  }
}

TEST_P(Flush, AWorkWhoseSignalOrPointIsWaitedForRuns) {
  auto context = NewContext();
  Activation activation = Enter(context);
  auto told = std::make_shared<Timeline>("told");
  const std::vector<float> a = {1};
  Deferred signals(this, "Neg", 1), awaited(this, "Neg", 1);
  signals.request().signal = {{told, 1}};
  CountedEnd ends[2];
  signals.Read(0, a);
  awaited.Read(0, a);
  activation.Defer(signals.work, &ends[0]);
  activation.Defer(awaited.work, &ends[1]);
  const Point point = awaited.work->point();
  EXPECT_EQ(point.Outcome(), std::nullopt);
  WatchedWork after;
  after.request().program = Compile("Neg", 1);
  after.request().inputs = {Floats(a)};
  after.request().after = {point, Point{told, 1}};
  signals.work = nullptr;
  awaited.work = nullptr;
  const FlushResult result = activation.Flush();
  Activation other = Enter(NewContext());
  other.Submit(after.work.get(), &after.waiter);
  EXPECT_EQ(result.dropped.size(), 0u);
  EXPECT_EQ(result.executed.size(), 2u);
  EXPECT_EQ(engine_->programs().stats().misses, 0u)
      << "a graph was made of what nobody reads";
  EXPECT_EQ(after.Done(), absl::OkStatus());
  for (CountedEnd& end : ends) end.done.Wait();
  EXPECT_TRUE(Eventually([&] { return context->unfinished() == 0; }));
}

TEST_P(Flush, ADeferredWorkRunsBeforeWhatComesAfterItInItsContext) {
  Activation activation = Enter(NewContext());
  auto told = std::make_shared<Timeline>("told");
  const std::vector<float> a = {1};
  Deferred first(this, "Neg", 1), second(this, "Neg", 1);
  second.request().signal = {{told, 1}};
  for (Deferred* work : {&first, &second}) {
    work->Read(0, a);
    Defer(activation, *work);
  }
  for (const Point& point : {first.work->point(), Point{told, 1}}) {
    WatchedWork after;
    after.request().program = Compile("Neg", 1);
    after.request().inputs = {Floats(a)};
    after.request().after = {point};
    after.request().deadline = NowNanos() + 30'000'000'000;
    activation.Submit(after.work.get(), &after.waiter);
    EXPECT_EQ(after.Done(), absl::OkStatus());
  }
  EXPECT_EQ(first.Done(), absl::OkStatus());
  EXPECT_EQ(second.Done(), absl::OkStatus());
}

TEST_P(Flush, ARefusedWorkIsFreed) {
  auto context = NewContext({.max_pending = 1});
  Activation activation = Enter(context);
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> a = {1};
  WatchedWork waiting;
  waiting.request().program = Compile("Neg", 1);
  waiting.request().inputs = {Floats(a)};
  waiting.request().after = {Point{gate, 1}};
  activation.Submit(waiting.work.get(), &waiting.waiter);
  Deferred refused(this, "Neg", 1);
  refused.Read(0, a);
  refused.request().mode = EvalMode::kEager;
  activation.Defer(refused.work, &refused.waiter);
  EXPECT_EQ(Reason(refused.Done()), "CONTEXT_FULL");
  const std::weak_ptr<Work> left = refused.work;
  refused.work = nullptr;
  EXPECT_TRUE(left.expired());
  ASSERT_TRUE(gate->Advance(1).ok());
  EXPECT_EQ(waiting.Done(), absl::OkStatus());
}

TEST_P(Flush, ADeadlineEndsNoMoreThanWhatWaitsForIt) {
  Activation activation = Enter(NewContext());
  auto gate = std::make_shared<Timeline>("gate");
  const std::vector<float> a = {1};
  WatchedWork late;
  late.request().program = Compile("Neg", 1);
  late.request().inputs = {Floats(a)};
  late.request().outputs = {OutputWish::kKeep};
  late.request().after = {Point{gate, 1}};
  late.request().deadline = NowNanos() + 50'000'000;
  activation.Submit(late.work.get(), &late.waiter);
  Deferred reader(this, "Neg", 1), other(this, "Abs", 1);
  reader.Read(0, late);
  other.Read(0, a);
  Defer(activation, reader);
  Defer(activation, other);
  activation.Flush();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Done()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(reader.Done())) << reader.Done();
  EXPECT_EQ(other.Done(), absl::OkStatus());
}

// A work that is done, or was used before, holds its context no more.
TEST_P(Flush, AContextClosesThoughItsWorksHoldOthersOfItsOwn) {
  const std::vector<float> a = {1};
  WatchedWork producer;
  producer.request().program = Compile("Neg", 1);
  producer.request().inputs = {Floats(a)};
  producer.request().outputs = {OutputWish::kKeep};
  Deferred reader(this, "Neg", 1), again(this, "Neg", 1);
  std::weak_ptr<EvalContext> closed;
  {
    Activation activation = Enter(NewContext());
    closed = activation.context().weak_from_this();
    activation.Submit(producer.work.get(), &producer.waiter);
    ASSERT_TRUE(producer.Done().ok());
    again.request().mode = EvalMode::kEager;
    again.Read(0, a);
    activation.Submit(again.work.get(), &again.waiter);
    ASSERT_TRUE(again.Done().ok());
    again.waiter.Reset();
    again.request().mode = EvalMode::kDeferred;
    again.Read(0, a);
    reader.Read(0, producer);
    Defer(activation, reader);
    Defer(activation, again);
  }
  // The thread that told of the last end may still be leaving it.
  ASSERT_TRUE(Eventually([&] { return closed.expired(); }));
  EXPECT_TRUE(absl::IsCancelled(reader.Done()));
  EXPECT_TRUE(absl::IsCancelled(again.Done()));
}

TEST_P(Flush, AClosedContextTellsWhoWaitsForItsDeferredWorks) {
  auto told = std::make_shared<Timeline>("told");
  const std::vector<float> a = {1};
  Deferred deferred(this, "Neg", 1);
  deferred.Read(0, a);
  deferred.request().signal = {{told, 1}};
  Point point;
  {
    Activation activation = Enter(NewContext());
    Defer(activation, deferred);
    point = deferred.work->point();
  }
  EXPECT_TRUE(absl::IsCancelled(deferred.Done()));
  ASSERT_TRUE(told->Outcome(1).has_value());
  EXPECT_TRUE(absl::IsCancelled(*told->Outcome(1)));
  ASSERT_TRUE(point.Outcome().has_value());
  EXPECT_TRUE(absl::IsCancelled(*point.Outcome()));
}

// The caller's bytes may change as soon as the call has returned.
TEST_P(Flush, BytesAreConsumedBeforeTheCallReturns) {
  auto context = NewContext();
  Activation activation = Enter(context);
  auto gate = std::make_shared<Timeline>("gate");
  std::vector<float> values = {1, 2, 3};
  WatchedWork eager;
  eager.request().program = Compile("Neg", 1);
  eager.request().inputs = {Floats(values)};
  eager.request().outputs = {OutputWish::kKeep};
  eager.request().after = {Point{gate, 1}};
  activation.Submit(eager.work.get(), &eager.waiter);
  ASSERT_TRUE(eager.Returned().ok());

  WatchedWork reader;  // its shapes are known when `eager` is launched
  reader.request().program = Compile("Add", 2);
  reader.request().inputs.resize(2);
  reader.request().inputs[0].producer = eager.work;
  reader.request().inputs[1] = Floats(values);
  reader.request().outputs = {OutputWish::kKeep};
  activation.Submit(reader.work.get(), &reader.waiter);
  ASSERT_TRUE(reader.Returned().ok());

  Deferred deferred(this, "Neg", 1);
  deferred.Read(0, values);
  Defer(activation, deferred);

  values.assign(3, 99);
  activation.Flush();
  ASSERT_TRUE(gate->Advance(1).ok());
  for (WatchedWork* work :
       {&eager, &reader, static_cast<WatchedWork*>(&deferred)}) {
    ASSERT_TRUE(work->Done().ok()) << work->work->status();
  }
  EXPECT_THAT(Kept(activation, eager), ElementsAre(-1, -2, -3));
  EXPECT_THAT(Kept(activation, reader), ElementsAre(0, 0, 0));
  EXPECT_THAT(Kept(activation, deferred), ElementsAre(-1, -2, -3));
}

// A signal reaches what is below it as well.
TEST_P(Flush, AWorkAfterALesserValueRunsWhatSignalsAGreaterOne) {
  Activation activation = Enter(NewContext());
  auto told = std::make_shared<Timeline>("told");
  const std::vector<float> a = {1};
  Deferred signals(this, "Neg", 1);
  signals.Read(0, a);
  signals.request().signal = {{told, 5}};
  Defer(activation, signals);
  WatchedWork after;
  after.request().program = Compile("Neg", 1);
  after.request().inputs = {Floats(a)};
  after.request().after = {Point{told, 3}};
  activation.Submit(after.work.get(), &after.waiter);
  EXPECT_EQ(after.Done(), absl::OkStatus());
  EXPECT_EQ(signals.Done(), absl::OkStatus());
}

TEST_P(Flush, ADeferredWorkDrawsItsSeedOnceAndARefusedOneNone) {
  Attributes shape;
  shape.Set("shape", std::vector<int64_t>{4});
  const auto random = Compile("RandomUniform", 0, shape, "weir");
  const std::vector<float> a = {1};
  const auto prepare = [&](WatchedWork& watched) {
    watched.request().program = random;
    watched.request().outputs = {OutputWish::kKeep};
    watched.request().mode = EvalMode::kDeferred;
  };
  Activation activation =
      Enter(NewContext({.rng = {.seed = 7}, .max_pending = 1}));
  Deferred first(this, "Neg", 1);
  first.Read(0, a);
  Defer(activation, first);
  WatchedWork refused, drawn;
  prepare(refused);
  activation.Defer(refused.work, &refused.waiter);
  EXPECT_EQ(Reason(refused.Done()), "CONTEXT_FULL");
  activation.Flush();
  ASSERT_TRUE(first.Done().ok());
  prepare(drawn);
  while (true) {  // the place of the first may be taken yet
    drawn.waiter.Reset();
    activation.Defer(drawn.work, &drawn.waiter);
    if (Reason(drawn.Returned()) != "CONTEXT_FULL") break;
  }
  const uint64_t seed = drawn.work->seed();
  EXPECT_EQ(seed, (RngState{.seed = 7}.Next()));
  activation.Flush();
  ASSERT_TRUE(drawn.Done().ok()) << drawn.work->status();
  EXPECT_EQ(drawn.work->seed(), seed);
}

}  // namespace
}  // namespace weir
